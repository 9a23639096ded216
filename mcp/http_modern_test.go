package mcp

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestFrontModernHeaders: what is routed by its headers and what is read in the
// body are one request, or it is refused before anything is sent.
func TestFrontModernHeaders(t *testing.T) {
	t.Parallel()
	const (
		meta    = `"_meta":{` + helloMeta + `}`
		call    = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},` + meta + `}}`
		routed  = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"routed","arguments":{"to":{"region":"Zürich "},"n":7},` + meta + `}}`
		without = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"routed","arguments":{},` + meta + `}}`
		region  = "=?base64?WsO8cmljaCA=?="
	)
	for name, c := range map[string]struct {
		body   string
		head   []string // set last; a value of "-" takes the header away
		status int
		part   string
	}{
		"good":                         {call, nil, 200, `"done"`},
		"coded name":                   {call, []string{headerName, "=?base64?ZWNobw==?="}, 200, `"done"`},
		"no version":                   {call, []string{headerVersion, "-"}, 400, "-32020"},
		"another version":              {call, []string{headerVersion, "2027-01-01"}, 400, "-32020"},
		"no method":                    {call, []string{headerMethod, "-"}, 400, "-32020"},
		"another method":               {call, []string{headerMethod, "tools/list"}, 400, "-32020"},
		"no name":                      {call, []string{headerName, "-"}, 400, "-32020"},
		"another name":                 {call, []string{headerName, "peek"}, 400, "-32020"},
		"badly coded name":             {call, []string{headerName, "=?base64?!?="}, 400, "-32020"},
		"unknown version":              {strings.ReplaceAll(call, modernVersion, "2027-01-01"), nil, 400, `"supported":["2026-07-28"`},
		"version in the header only":   {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, []string{headerVersion, modernVersion, headerMethod, "tools/list"}, 400, "-32602"},
		"no capabilities":              {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"` + metaVersion + `":"` + modernVersion + `"}}}`, nil, 400, "-32602"},
		"a request of earlier":         {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, nil, 404, "-32601"},
		"an answer":                    {`{"jsonrpc":"2.0","id":1,"result":{}}`, []string{headerVersion, modernVersion}, 400, "-32600"},
		"an unknown method":            {`{"jsonrpc":"2.0","id":1,"method":"no/such","params":{` + meta + `}}`, nil, 404, "-32601"},
		"arguments as headers":         {routed, []string{"Mcp-Param-Region", region, "Mcp-Param-N", "7"}, 200, `"done"`},
		"an argument without header":   {routed, []string{"Mcp-Param-Region", region}, 400, "-32020"},
		"another argument":             {routed, []string{"Mcp-Param-Region", region, "Mcp-Param-N", "8"}, 400, "-32020"},
		"a header without argument":    {without, []string{"Mcp-Param-N", "7"}, 400, "-32020"},
		"neither argument nor headers": {without, nil, 200, `"done"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startFront(t, "", HTTPConfig{})
			w.t = t
			req, err := w.visitor().prepare(t.Context(), http.MethodPost, c.body, c.head...)
			if err != nil {
				t.Fatal(err)
			}
			for h, v := range req.Header {
				if v[0] == "-" {
					delete(req.Header, h)
				}
			}
			resp, err := webClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.status || !strings.Contains(string(b), c.part) {
				t.Errorf("%v, status %d, want %d and %s: %s", err, resp.StatusCode, c.status, c.part, b)
			}
			if calls := strings.Count(w.seen(), "call "); (calls > 0) != (c.status == 200) {
				t.Errorf("%d calls reached the server", calls)
			}
		})
	}
}
