package mcp

import (
	"strings"
	"testing"
	"time"
)

// TestWhatWasSetOutlivesTheProcess: the next process of a server is told the
// level of the log and the subscriptions, and the client hears nothing of it.
func TestWhatWasSetOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	srv := scripted(t, "fake", `*logging/setLevel*|*resources/subscribe*|*resources/unsubscribe*) answer '{}';;
*tools/call*) exit 3;;
*ping*) answer '{}';;`)
	r := startServer(t, srv, "", nil)
	r.hello()
	for id, request := range map[string]string{
		"1": `"logging/setLevel","params":{"level":"info"}`, "2": `"resources/subscribe","params":{"uri":"a:1"}`, "3": `"resources/subscribe","params":{"uri":"a:2"}`,
	} {
		r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":` + request + `}`)
		r.expect(`"id":`+id, `"result":{}`)
	}
	r.send(`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a:2"}}`)
	r.expect(`"id":4`)
	r.send(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"debug"}}`)
	r.expect(`"id":5`)
	r.call("6", "x", `{}`, "")
	r.expect(`"id":6`)
	r.send(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	r.expect(`"id":7`, `"result":{}`)
	var second string
	for end := time.Now().Add(5 * time.Second); strings.Count(second, `"method":`) < 5; time.Sleep(5 * time.Millisecond) {
		_, second, _ = strings.Cut(noted(t, srv), "tools/call")
		if time.Now().After(end) {
			t.Fatalf("the second process was told:\n%s", second)
		}
	}
	if !strings.Contains(second, `"level":"debug"`) || strings.Contains(second, `"level":"info"`) ||
		!strings.Contains(second, `"uri":"a:1"`) || strings.Contains(second, `"uri":"a:2"`) || strings.Count(second, `"initialize"`) != 1 {
		t.Errorf("the second process was told:\n%s", second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) > 0 {
		t.Errorf("the client heard: %s", r.lines)
	}
}
