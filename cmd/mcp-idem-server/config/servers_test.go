package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustParse(t *testing.T, file string) *Config {
	t.Helper()
	c, err := parse([]byte(file), env)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return c
}

func TestServers(t *testing.T) {
	c := mustParse(t, `{"mcpServers":{
		"d": {"type":"sse","url":"http://h/sse"},
		"a": {"type":"streamableHttp","url":"https://h/mcp?k=1","headers":{"authorization":"Bearer ${TICKETS_TOKEN}"},"allow":["get_*"],"deny":["get_x"]},
		"b": {"type":"streamable-http","url":"http://h"}, "c": {"url":"http://h"}, "e": {"command":"x"}, "f": {"type":"http","url":"http://h","disabled":true}}}`)
	want := []Upstream{
		{Name: "a", Type: TransportHTTP, URL: "https://h/mcp?k=1", Headers: map[string]string{"Authorization": "Bearer s3cret"}, Allow: []string{"get_*"}, Deny: []string{"get_x"}},
		{Name: "b", Type: TransportHTTP, URL: "http://h"}, {Name: "c", Type: TransportHTTP, URL: "http://h"},
		{Name: "d", Type: TransportSSE, URL: "http://h/sse"}, {Name: "e", Type: TransportStdio, Command: "x"},
	}
	if !cmp.Equal(c.Upstreams, want) {
		t.Error(cmp.Diff(want, c.Upstreams))
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		allow, deny []string
		tool        string
		want        bool
	}{
		{nil, nil, "x", true}, {[]string{"get_*"}, nil, "get_x", true}, {[]string{"get_*"}, nil, "set_x", false}, {[]string{"a", "b"}, nil, "b", true},
		{nil, []string{"get_*"}, "get_x", false}, {nil, []string{"get_*"}, "set_x", true}, {[]string{"*"}, []string{"x"}, "x", false},
		{[]string{"*"}, nil, "a/b", false}, {[]string{"**"}, nil, "a/b", true},
	} {
		if u := (Upstream{Allow: c.allow, Deny: c.deny}); u.Allows(c.tool) != c.want {
			t.Errorf("allow %q, deny %q: %s is %v", c.allow, c.deny, c.tool, !c.want)
		}
	}
}

func TestPrefixed(t *testing.T) {
	two, one := `"mcpServers":{"a":{"command":"x"},"b":{"command":"x"}}`, `"mcpServers":{"a":{"command":"x"},"b":{"command":"x","disabled":true}}`
	for file, want := range map[string]bool{
		`{` + one + `}`: false, `{` + two + `}`: true, `{"names":"auto",` + two + `}`: true,
		`{"names":"plain",` + two + `}`: false, `{"names":"prefix",` + one + `}`: true,
	} {
		if c := mustParse(t, file); c.Prefixed() != want {
			t.Errorf("%s: prefixed %v", file, !want)
		}
	}
}

func TestHTTPServer(t *testing.T) {
	if got, want := mustParse(t, `{}`), (HTTPServer{Listen: "127.0.0.1:8787", MaxBody: 16 << 20, SessionIdle: 30 * time.Minute}); !cmp.Equal(got.HTTP, want) || !got.ControlTools {
		t.Errorf("defaults %s", cmp.Diff(want, got.HTTP))
	}
	c := mustParse(t, `{"tenant":"top","control_tools":false,"http":{"listen":":9","tokens":[{"sha256":"`+hash+`"},{"sha256":"`+hash[2:]+`00","tenant":"acme","name":"ci"}],
		"allowed_origins":["HTTPS://App.example:1"],"allowed_hosts":["MCP.example"],"max_body":"1KiB","session_idle":"1h","tls_cert":"c","tls_key":"k"}}`)
	h := c.HTTP
	if len(h.Tokens) != 2 || h.Tokens[0].Tenant != "top" || h.Tokens[0].Name != hash[:8] || h.Tokens[0].SHA256[0] != 0x9f || h.Tokens[1].Principal() != `"acme"/ci` {
		t.Errorf("tokens %+v", h.Tokens)
	}
	h.Tokens = nil
	if want := (HTTPServer{Given: true, Listen: ":9", AllowedOrigins: []string{"https://app.example:1"}, AllowedHosts: []string{"mcp.example"}, MaxBody: 1024, SessionIdle: time.Hour, TLSCert: "c", TLSKey: "k"}); !cmp.Equal(h, want) || c.ControlTools {
		t.Error(cmp.Diff(want, h))
	}
}

// Over HTTP "not found" is believed only after the longest run of the tool.
func TestSettle(t *testing.T) {
	servers := `"mcpServers":{"near":{"command":"x"},"far":{"url":"http://h"},"off":{"url":"http://h","disabled":true}}`
	for _, c := range []struct {
		match, fields string
		want          time.Duration
	}{
		{"near/x", ``, 5 * time.Second}, {"far/x", ``, time.Minute}, {"**", ``, time.Minute}, {"*/x", ``, time.Minute}, {"other/x", ``, 5 * time.Second},
		{"near/*", `"timeout":"3m",`, 5 * time.Second}, {"far/*", `"timeout":"3m",`, 3 * time.Minute}, {"far/*", `"timeout":"3s",`, time.Minute},
	} {
		file := `{` + servers + `,"policies":[{"match":"*/s","effect":"read"},{"match":"` + c.match + `",` + c.fields + `"reconcile":{"tool":"s","found":".","baseline":true}}]}`
		if got := mustParse(t, file).tools[1].Query.Settle; got != c.want {
			t.Errorf("%s %s: settle %s, want %s", c.match, c.fields, got, c.want)
		}
	}
}
