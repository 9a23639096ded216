package policy

import (
	"context"
	"encoding/json"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// FuzzClassify: whatever an upstream answers, nothing panics, only an object
// with content is a success, and no answer counts as not sent.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{okResult, `null`, `{}`, `{"content":[]}`, `{"content":[],"isError":true}`, `{"content":[null,1,{"type":"text","text":null}],"isError":true}`,
		`{"resultType":"input_required","requestState":7}`, `{"code":-32602,"message":"x"}`, `{"code":1e999}`, "{\"content\":[\"\xff\"]}", `{"content":[],"content":null}`, `[[[[`} {
		f.Add([]byte(s))
	}
	tool := &Tool{ID: jq(`.structuredContent.id`), Rules: []Rule{{If: jq(`.isError and (.content[0].text | test("slow"))`), Class: idem.ClassThrottled}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if raw == nil {
			return
		}
		o := tool.Classify(context.Background(), Facts{Result: raw, Sent: true})
		if o.Class == idem.ClassSuccess {
			var r map[string]json.RawMessage
			if err := json.Unmarshal(raw, &r); err != nil || len(r["content"]) == 0 || r["content"][0] != '[' || string(r["isError"]) == "true" {
				t.Fatalf("%q is a success: %v", raw, err)
			}
		}
		e := tool.Classify(context.Background(), Facts{RPCError: raw, Sent: true})
		if e.Class == idem.ClassSuccess || o.Class == idem.ClassNotSent || e.Class == idem.ClassNotSent {
			t.Fatalf("%q: %s as result, %s as error", raw, o.Class, e.Class)
		}
	})
}
