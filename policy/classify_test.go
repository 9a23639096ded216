package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	idem "github.com/mcp-idem/mcp-idem"
)

const okResult = `{"content":[{"type":"text","text":"made"}],"structuredContent":{"id":"T-1","n":9007199254740993}}`

func result(s string) Facts { return Facts{Result: []byte(s), Sent: true} }
func rpc(s string) Facts    { return Facts{RPCError: []byte(s), Sent: true} }

func isError(text string) Facts {
	raw, _ := Encode(map[string]any{"isError": true, "content": []any{map[string]any{"type": "text", "text": text}}})
	return Facts{Result: raw, Sent: true}
}

func TestTable(t *testing.T) {
	asked := &Tool{Query: &idem.QueryRules{}}
	silent := &Tool{}
	for _, c := range []struct {
		name  string
		tool  *Tool
		facts Facts
		want  idem.Class
	}{
		{"success", silent, result(okResult), idem.ClassSuccess},
		{"empty content", silent, result(`{"content":[]}`), idem.ClassSuccess},
		{"complete", silent, result(`{"content":[],"resultType":"complete","isError":false,"_meta":null}`), idem.ClassSuccess},
		{"bad UTF-8 inside", silent, result("{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}"), idem.ClassSuccess},
		{"duplicates below", silent, result(`{"content":[],"structuredContent":{"a":1,"a":2}}`), idem.ClassSuccess},
		{"null", silent, result(`null`), idem.ClassAmbiguous},
		{"empty object", silent, result(`{}`), idem.ClassAmbiguous},
		{"content null", silent, result(`{"content":null}`), idem.ClassAmbiguous},
		{"content a string", silent, result(`{"content":"x"}`), idem.ClassAmbiguous},
		{"structuredContent only", silent, result(`{"structuredContent":{"id":1}}`), idem.ClassAmbiguous},
		{"an array", silent, result(`[]`), idem.ClassAmbiguous},
		{"cut", silent, result(`{"content":[]`), idem.ClassAmbiguous},
		{"more behind it", silent, result(`{"content":[]}{}`), idem.ClassAmbiguous},
		{"empty", silent, result(``), idem.ClassAmbiguous},
		{"two isError", silent, result(`{"content":[],"isError":false,"isError":true}`), idem.ClassAmbiguous},
		{"isError text", silent, result(`{"content":[],"isError":"true"}`), idem.ClassAmbiguous},
		{"unknown type", silent, result(`{"content":[],"resultType":"task"}`), idem.ClassAmbiguous},
		{"interim", silent, result(`{"resultType":"input_required","requestState":"s"}`), idem.ClassInterim},
		{"interim, as an error", silent, rpc(`{"code":-32042,"message":"visit","data":{"elicitations":[]}}`), idem.ClassInterim},

		{"reported", silent, isError("no such product"), idem.ClassReported},
		{"reported without text", silent, result(`{"isError":true,"content":[]}`), idem.ClassReported},
		{"order 5021", silent, isError("order 5021 is closed"), idem.ClassReported},
		{"timeout, nothing to ask", silent, isError("Request timed out"), idem.ClassAmbiguous},
		{"timeout, a query to ask", asked, isError("Request timed out"), idem.ClassReported},
		{"said to be fine", silent, result(`{"content":[{"type":"text","text":"Error 504"}]}`), idem.ClassSuccess},

		{"method", silent, rpc(`{"code":-32601,"message":"Method not found"}`), idem.ClassRejected},
		{"params", silent, rpc(`{"code":-32602,"message":"Invalid arguments for tool x"}`), idem.ClassRejected},
		{"output", silent, rpc(`{"code":-32602,"message":"MCP error -32602: Output validation error: x"}`), idem.ClassAmbiguous},
		{"output, other words", silent, rpc(`{"code":-32602,"message":"Tool x has an output schema but no structured content was provided"}`), idem.ClassAmbiguous},
		{"internal", silent, rpc(`{"code":-32603,"message":"x"}`), idem.ClassAmbiguous},
		{"parse", silent, rpc(`{"code":-32700,"message":"x"}`), idem.ClassAmbiguous},
		{"request", silent, rpc(`{"code":-32600,"message":"x"}`), idem.ClassAmbiguous},
		{"server", silent, rpc(`{"code":-32001,"message":"x"}`), idem.ClassAmbiguous},
		{"unreadable", silent, rpc(`{"code":"x"`), idem.ClassAmbiguous},
		{"two codes", silent, rpc(`{"code":-32601,"code":-32603,"message":"x"}`), idem.ClassAmbiguous},
		{"another's code", silent, rpc(`{"code":-32603,"Code":-32601,"message":"x"}`), idem.ClassAmbiguous},
		{"another's isError", silent, result(`{"content":[],"IsError":true}`), idem.ClassSuccess},
		{"no code", silent, rpc(`{}`), idem.ClassAmbiguous},

		{"reset", silent, Facts{Err: errors.New("connection refused"), Sent: true}, idem.ClassAmbiguous}, // observed, not guessed
		{"never left", silent, Facts{Err: errors.New("timed out")}, idem.ClassNotSent},
		{"context over before dispatch", silent, Facts{Err: context.DeadlineExceeded}, idem.ClassNotSent},
		{"context over after it", silent, Facts{Err: context.DeadlineExceeded, Sent: true}, idem.ClassAmbiguous},
		{"nothing known", silent, Facts{Sent: true}, idem.ClassAmbiguous},
	} {
		o := c.tool.Classify(context.Background(), c.facts)
		if o.Class != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, o.Class, o.Text, c.want)
		}
		if (o.Class == idem.ClassAmbiguous || o.Class == idem.ClassNotSent) != (o.Result == nil) {
			t.Errorf("%s: %s with result %q", c.name, o.Class, o.Result)
		}
		wantEnd := idem.EndBy("")
		if c.facts.answered() {
			wantEnd = idem.EndByAnswer
		} else if !c.facts.Sent {
			wantEnd = idem.EndByNotSent
		}
		if o.Ended != wantEnd {
			t.Errorf("%s: ended by %q, want %q", c.name, o.Ended, wantEnd)
		}
	}
}

func TestTransportTexts(t *testing.T) {
	for _, text := range []string{"timed out", "Timeout of 1s", "time-out", "read ECONNRESET", "socket hang up", "HTTP 502", "status code 503", "504 Gateway Time-out",
		"context deadline exceeded", "deadline", "Connection reset by peer", "write EPIPE", "unexpected EOF", "Bad Gateway"} {
		if o := (&Tool{}).Classify(context.Background(), isError(text)); o.Class != idem.ClassAmbiguous {
			t.Errorf("%q is %s", text, o.Class)
		}
	}
}

func TestOutcomeParts(t *testing.T) {
	ctx := context.Background()
	tool := &Tool{ID: jq(`.structuredContent.id`)}
	o := tool.Classify(ctx, result(okResult))
	if o.ExternalID != "T-1" || o.Kind != idem.ResultValue || string(o.Result) != okResult || o.Text != "" {
		t.Errorf("success: %+v", o)
	}
	if o := (&Tool{ID: jq(`.structuredContent.n`)}).Classify(ctx, result(okResult)); o.ExternalID != "9007199254740993" {
		t.Errorf("numeric id %q", o.ExternalID)
	}
	for _, none := range []string{`.structuredContent.nope`, `.content.x`, `.content[], 1`, `true`} {
		if o := (&Tool{ID: jq(none)}).Classify(ctx, result(okResult)); o.Class != idem.ClassSuccess || o.ExternalID != "" {
			t.Errorf("%s: %s, id %q", none, o.Class, o.ExternalID)
		}
	}
	e := `{"code":-32602,"message":"bad priority"}`
	if o := tool.Classify(ctx, rpc(e)); o.Kind != idem.ResultError || string(o.Result) != e || o.Text != "bad priority" {
		t.Errorf("rejected: %+v", o)
	}
	o = tool.Classify(ctx, result(`{"resultType":"input_required","requestState":"a\u0062"}`))
	if want := sha256.Sum256([]byte("ab")); !bytes.Equal(o.ParkedOn, want[:]) || !bytes.Equal(o.ParkedOn, StateDigest("ab")) {
		t.Errorf("parked on %x", o.ParkedOn)
	}
	if o := tool.Classify(ctx, isError(strings.Repeat("é", 5000)+"x")); len(o.Text) > idem.TextLimit || !utf8.ValidString(o.Text) {
		t.Errorf("text of %d bytes", len(o.Text))
	}
}

func TestRules(t *testing.T) {
	ctx := context.Background()
	rule := func(cond string, class idem.Class, trust bool) *Tool {
		return &Tool{Rules: []Rule{{jq(cond), class, trust}}}
	}
	limited := `.isError and (.content[0].text | test("rate limit"; "i"))`
	reset := Facts{Err: errors.New("read: connection reset"), Sent: true}
	for _, c := range []struct {
		name  string
		tool  *Tool
		facts Facts
		want  idem.Class
	}{
		{"throttled", rule(limited, idem.ClassThrottled, false), isError("Rate limit reached"), idem.ClassThrottled},
		{"no match", rule(limited, idem.ClassThrottled, false), isError("no"), idem.ClassReported},
		{"an error is no match", rule(limited, idem.ClassThrottled, false), result(`{"isError":true,"content":[]}`), idem.ClassReported},
		{"null is no match", rule(`.nope`, idem.ClassThrottled, false), result(okResult), idem.ClassSuccess},
		{"empty is no match", rule(`empty`, idem.ClassThrottled, false), result(okResult), idem.ClassSuccess},
		{"a lying success", rule(`.content[0].text | test("^Error 500")`, idem.ClassAmbiguous, false), result(`{"content":[{"type":"text","text":"Error 500"}]}`), idem.ClassAmbiguous},
		{"before ambiguous text", rule(`.isError`, idem.ClassRejected, false), isError("timed out"), idem.ClassRejected},
		{"rpc code", rule(`.rpc_code == -32050`, idem.ClassThrottled, false), rpc(`{"code":-32050,"message":"slow"}`), idem.ClassThrottled},
		{"rpc error", rule(`.error == "slow"`, idem.ClassThrottled, false), rpc(`{"code":-32050,"message":"slow"}`), idem.ClassThrottled},
		{"error", rule(`.error | test("reset")`, idem.ClassNotSent, true), reset, idem.ClassNotSent},
		{"without trust", rule(`true`, idem.ClassNotSent, false), reset, idem.ClassAmbiguous},
		{"without an answer", rule(`true`, idem.ClassThrottled, false), reset, idem.ClassAmbiguous},
		{"without an answer, rejected", rule(`true`, idem.ClassRejected, false), reset, idem.ClassAmbiguous},
		{"status", rule(`.http_status == 503`, idem.ClassThrottled, false), Facts{Err: errors.New("x"), Sent: true, HTTPStatus: 503}, idem.ClassThrottled},
		{"no status", rule(`has("http_status") or has("rpc_code") or has("error")`, idem.ClassThrottled, false), result(okResult), idem.ClassSuccess},
		{"not sent stays", rule(`true`, idem.ClassAmbiguous, false), Facts{Err: errors.New("x")}, idem.ClassNotSent},
		{"interim stays", rule(`true`, idem.ClassRejected, false), result(`{"resultType":"input_required"}`), idem.ClassInterim},
		{"null result", rule(`true`, idem.ClassRejected, false), result(`null`), idem.ClassRejected},
		{"first match", &Tool{Rules: []Rule{{jq(`false`), idem.ClassRejected, false}, {jq(`true`), idem.ClassThrottled, false}, {jq(`true`), idem.ClassRejected, false}}}, isError("x"), idem.ClassThrottled},
	} {
		if o := c.tool.Classify(ctx, c.facts); o.Class != c.want {
			t.Errorf("%s: %s, want %s", c.name, o.Class, c.want)
		}
	}
}

func TestIdentifier(t *testing.T) {
	long := strings.Repeat("x", 65)
	for in, want := range map[string]string{`"T-1"`: "T-1", `7.0`: "7", `null`: "", `{"b":1,"a":2}`: `{"a":2,"b":1}`, `""`: "",
		`"` + long[:64] + `"`: long[:64], `"` + long + `"`: "sha256:"} {
		v, err := Decode([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Identifier(v)
		if strings.HasPrefix(want, "sha256:") {
			if !strings.HasPrefix(got, "sha256:") || len(got) != 7+64 {
				t.Errorf("a long value gives %s", got)
			}
		} else if err != nil || got != want {
			t.Errorf("Identifier(%s) = %q, %v", in, got, err)
		}
	}
	if id, err := Identifier(false); err == nil {
		t.Errorf("false gives %q", id)
	}
}

// TestHTTPStatus: only what an endpoint refuses before it looks is definite.
func TestHTTPStatus(t *testing.T) {
	tool := DefaultTool()
	for status, want := range map[int]idem.Class{
		401: idem.ClassRejected, 403: idem.ClassRejected, 413: idem.ClassRejected, 415: idem.ClassRejected, 429: idem.ClassThrottled,
		400: idem.ClassAmbiguous, 404: idem.ClassAmbiguous, 408: idem.ClassAmbiguous, 409: idem.ClassAmbiguous, 422: idem.ClassAmbiguous, 425: idem.ClassAmbiguous,
		500: idem.ClassAmbiguous, 502: idem.ClassAmbiguous, 503: idem.ClassAmbiguous, 504: idem.ClassAmbiguous, 307: idem.ClassAmbiguous, 0: idem.ClassAmbiguous,
	} {
		o := tool.Classify(t.Context(), Facts{Err: errors.New("HTTP"), Sent: true, HTTPStatus: status, RetryAfter: time.Second})
		if o.Class != want || o.RetryAfter != time.Second {
			t.Errorf("%d: %s after %s, want %s", status, o.Class, o.RetryAfter, want)
		}
	}
}
