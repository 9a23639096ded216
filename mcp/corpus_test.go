package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// corpusTools are definitions with what typed decoding loses.
var corpusTools = []string{
	`{"name":"oneOf","inputSchema":{"oneOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}]}}`,
	`{"name":"schema","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{"x":{"minimum":1.0}},"type":"object","minProperties":1}}`,
	`{"name":"unknown","x-vendor":{"n":9007199254740993,"e":1E+2,"f":1.0},"inputSchema":{"type":"object"},"future":[null,true]}`,
	`{"name":"bare","inputSchema":{"type":"object"}}`,
	`{"name":"empty","annotations":{},"inputSchema":{"type":"object","properties":{}}}`,
	`{"name":"notes","annotations":{"title":"Nötes ✓","readOnlyHint":false,"vendor":1},"icons":[{"src":"data:image/png;base64,AA==","sizes":["48x48"]}],"inputSchema":{"type":"object"}}`,
	`{"name":"out","outputSchema":{"type":"array","items":{"type":"integer"}},"inputSchema":{"type":"object"},"_meta":{"ui/resourceUri":"ui://x"}}`,
	`{ "inputSchema" : {"type":"object"} , "description":"spaces,  and the name last A\/" , "name" : "s\u0070aced" }`,
	`{"name":"later","execution":{"taskSupport":"optional"},"inputSchema":{"type":"object"}}`,
}

// corpusResults are answers to tools/call, of every kind of content: what the
// guard takes for a success or a refusal.
var corpusResults = func() []string {
	text := func(s string) string { return `{"content":[{"type":"text","text":` + s + `}]}` }
	structured := func(s string) string { return `{"content":[],"structuredContent":` + s + `}` }
	return []string{
		text(`"done"`),
		text(`""`),
		text(`"Grüße, 世界 🌍 \u2028 \ud83d\ude00 \"q\" \\ \/ \b\f\n\r\t"`),
		text(`"\u0000\u001f"`),
		text("\"e\u0301 \u200f\u05d0 \ufeff\""),
		`{"content":[]}`,
		`{"content":[],"isError":false}`,
		`{"content":[{"type":"text","text":"no such order"}],"isError":true}`,
		`{"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}`,
		`{"content":[{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"file:///a.txt","mimeType":"text/plain","text":"a"}}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"file:///a.bin","blob":"AAEC"}}]}`,
		`{"content":[{"type":"resource_link","uri":"https://example.org/ä","name":"l","title":"L","size":9007199254740993}]}`,
		`{"content":[{"type":"text","text":"1"},{"type":"image","data":"","mimeType":"image/gif"},{"type":"text","text":"2"},{"type":"resource_link","uri":"x:y","name":"z"}]}`,
		`{"content":[{"type":"text","text":"a","annotations":{"audience":["user"],"priority":0.5,"lastModified":"2026-01-01T00:00:00Z"}}]}`,
		`{"content":[{"type":"text","text":"a","_meta":{"vendor/x":[1,2]}}]}`,
		`{"content":[{"type":"hologram","data":{"a":[{}]}}]}`,
		structured(`{"n":9007199254740993}`),
		structured(`{"n":-9223372036854775808,"m":18446744073709551616}`),
		structured(`{"a":1.0,"b":1,"c":1e0,"d":1E+400,"e":-0,"f":-0.0,"g":5e-324}`),
		structured(`{"pi":3.14159265358979323846264338327950288}`),
		structured(`{"a":null,"b":true,"c":[],"d":{},"":"empty name"}`),
		structured(`[1,"two",{"three":3}]`),
		structured(`"text"`),
		structured(`{"deep":` + strings.Repeat(`[`, 500) + strings.Repeat(`]`, 500) + `}`),
		`{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1},"isError":false}`,
		`{"content":[],"_meta":{"up/trace":"x","n":1.50}}`,
		`{"_meta":{},"content":[]}`,
		`{"_meta":{"a":{"b":[9007199254740993]}},"content":[{"type":"text","text":"x"}],"structuredContent":{"z":1,"a":2}}`,
		`{"content":[],"future":{"n":1.0},"x":[1,2,3],"s":"\u00e9"}`,
		`{ "content" : [ { "text" : "spaces" , "type" : "text" } ] , "isError" : false }`,
		`{"isError":false,"content":[{"type":"text","text":"x"}],"nextCursor":"not a page"}`,
		`{"content":[{"type":"image","data":"` + strings.Repeat("QUJD", 1<<20) + `","mimeType":"image/png"}]}`,
	}
}()

// serveCorpus is a server that answers with the raw text of the corpus. It writes
// a line to the file in FAKE_LOG for each call.
func serveCorpus() {
	out := bufio.NewWriter(os.Stdout)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m fakeMessage
		if json.Unmarshal(line, &m) != nil || len(m.ID) == 0 {
			continue
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
		case "tools/list":
			result = `{"tools":[` + strings.Join(corpusTools, " , ") + `],"_meta":{"n":1.0}}`
		case "tools/call":
			var p struct {
				Name string `json:"name"`
			}
			_ = json.Unmarshal(m.Params, &p)
			n, _ := strconv.Atoi(strings.TrimLeft(p.Name, "abcdefghijklmnopqrstuvwxyz"))
			result = corpusResults[n]
			if path := os.Getenv("FAKE_LOG"); path != "" {
				f, _ := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				fmt.Fprintf(f, "call %s\n", bytes.TrimSpace(line))
				_ = f.Close()
			}
		}
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		_ = out.Flush()
	}
}
