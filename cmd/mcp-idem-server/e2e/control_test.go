package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// control calls one of the gateway's own tools and wants every part in its answer.
func (p *piped) control(tool, args string, parts ...string) string {
	p.t.Helper()
	got := p.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, args))
	for _, part := range parts {
		if !strings.Contains(got, part) {
			p.t.Errorf("%s %s: no %q in %s", tool, args, part, got)
		}
	}
	return got
}

// An agent begins an effect of its own and the gateway dies, or ends: nobody may
// begin it again, and the agent can still say what came of it.
func TestBegunBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*piped) error{
		"killed": func(p *piped) error { return p.cmd.Process.Kill() },
		"ended":  func(p *piped) error { return p.in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--ledger", "bolt://" + filepath.Join(t.TempDir(), "ledger.db"), "--task", "t1"}
			p := startPiped(t, args...)
			const pay = `{"action":"pay","arguments":{"order":17}}`
			var begun struct {
				Result struct {
					Structured struct{ Op string } `json:"structuredContent"`
				}
			}
			must(t, json.Unmarshal([]byte(p.control("idem_begin", pay, `"status":"begun"`)), &begun))
			op := fmt.Sprintf(`{"op":%q}`, begun.Result.Structured.Op)
			must(t, end(p))
			_ = p.cmd.Wait() // killed, it ends with an error

			p = startPiped(t, args...)
			for until := time.Now().Add(10 * time.Second); !strings.Contains(p.control("idem_status", op), `"state":"NEEDS_REVIEW"`); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("no person is called")
				}
			}
			p.control("idem_begin", pay, `"status":"unknown"`, "Do not do it")
			p.control("idem_note", `{"kind":"ref","name":"receipt","value":"P-1"}`, "Noted")
			p.control("idem_complete", strings.TrimSuffix(op, "}")+`,"outcome":"done","external_id":"P-1"}`, `"state":"COMMITTED"`)
			p.control("idem_begin", pay, `"status":"done"`, `"external_id":"P-1"`)
			p.control("idem_task", `{}`, `"unsettled":[]`, `"tool":"outside/pay"`, `"name":"receipt"`)
		})
	}
}
