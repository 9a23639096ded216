package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// desk is the control tools of one process on a ledger that outlasts it.
type desk struct {
	t     *testing.T
	store idem.Store
	guard *idem.Guard
	*Control
}

func newDesk(t *testing.T, store idem.Store) *desk {
	t.Helper()
	set, err := policy.New(policy.Config{Servers: []string{"tickets", OutsideServer}, Tools: []policy.Tool{{Match: "outside/hurry", Timeout: 20 * time.Millisecond}}})
	if err != nil {
		t.Fatal(err)
	}
	system, err := proc.New()
	if err != nil {
		t.Fatal(err)
	}
	g, err := idem.New(idem.Config{Store: store, Policy: set, Owner: system.Self(), Processes: system})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, store: store, guard: g, Control: NewControl(ControlConfig{Guard: g, Store: store})}
	t.Cleanup(d.end)
	return d
}

func (d *desk) end() {
	d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := d.guard.Close(ctx); err != nil {
		d.t.Error(err)
	}
}

func memory(t *testing.T) idem.Store {
	st := memstore.New(memstore.Config{})
	t.Cleanup(func() { _ = st.Close() })
	return st
}

var agent = Caller{Tenant: "acme", Task: "t1"}

// says calls a tool and wants every part in its answer.
func (d *desk) says(who Caller, tool, args string, parts ...string) map[string]any {
	d.t.Helper()
	raw := d.Call(d.t.Context(), who, tool, []byte(args))
	var r struct {
		Structured map[string]any `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		d.t.Fatalf("%s: %v", raw, err)
	}
	for _, p := range parts {
		if !strings.Contains(string(raw), p) {
			d.t.Errorf("%s %s: no %q in %s", tool, args, p, raw)
		}
	}
	return r.Structured
}

const invoice = `{"action":"send_invoice","arguments":{"order":17}}`

func completed17(op any, rest string) string {
	return fmt.Sprintf(`{"op":%q,%s}`, op, rest)
}

func TestBeginAndComplete(t *testing.T) {
	d := newDesk(t, memory(t))
	op := d.says(agent, "idem_begin", invoice, `"status":"begun"`, `"attempt":1`)["op"]
	d.says(agent, "idem_begin", invoice, `"status":"in_progress"`, "do not do it", `"op":"`+op.(string))
	d.says(agent, "idem_status", completed17(op, `"x":1`), "unknown field")
	d.says(agent, "idem_status", `{"op":"`+op.(string)+`"}`, `"state":"STARTED"`, `"tool":"outside/send_invoice"`)
	d.says(agent, "idem_complete", completed17(op, `"outcome":"done","external_id":"I-1","result":{"n":9007199254740993}`), `"state":"COMMITTED"`, `"external_id":"I-1"`)
	d.says(agent, "idem_status", `{"op":"`+op.(string)+`"}`, `"state":"COMMITTED"`, `"n":9007199254740993`)
	again := newDesk(t, d.store)
	again.says(agent, "idem_task", `{}`, `"completed":[{"op":"`+op.(string), `"external_id":"I-1"`, `"unsettled":[]`)
	again.says(agent, "idem_begin", invoice, `"status":"done"`, `"result":{"n":9007199254740993}`)
}

// TestBegunAtOnce: of many that begin the same, one has it.
func TestBegunAtOnce(t *testing.T) {
	d := newDesk(t, memory(t))
	other := newDesk(t, d.store)
	var mu sync.Mutex
	begun := 0
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			from := []*desk{d, other}[i%2]
			raw := from.Call(t.Context(), agent, "idem_begin", []byte(`{"action":"pay","step":"s1"}`))
			if strings.Contains(string(raw), `"status":"begun"`) {
				mu.Lock()
				begun++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if begun != 1 {
		t.Errorf("%d of them may have the effect", begun)
	}
}

// TestCompletedElsewhere: the process in which an effect was begun has ended, and
// its outcome was unknown until it is told after all.
func TestCompletedElsewhere(t *testing.T) {
	st := memory(t)
	d := newDesk(t, st)
	op := d.says(agent, "idem_begin", invoice, `"status":"begun"`)["op"].(string)
	d.Close()
	after := newDesk(t, st)
	after.await(op, "NEEDS_REVIEW")
	after.says(agent, "idem_begin", invoice, `"status":"unknown"`, "Do not do it", `"code":"NEEDS_REVIEW"`)
	after.says(agent, "idem_task", `{}`, `"unsettled":[{"op":"`+op)
	after.says(agent, "idem_complete", completed17(op, `"outcome":"done","external_id":"I-2"`), `"state":"COMMITTED"`)
	after.says(agent, "idem_begin", invoice, `"status":"done"`, `"external_id":"I-2"`)
}

// await looks until an operation is in a state.
func (d *desk) await(op, state string) {
	d.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := d.says(agent, "idem_status", `{"op":"`+op+`"}`)["state"]
		if got == state {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("it is %v, want %s", got, state)
		}
	}
}

// TestCompletedLate: the timeout was faster than the agent, who tells what is so
// to the same process.
func TestCompletedLate(t *testing.T) {
	d := newDesk(t, memory(t))
	op := d.says(agent, "idem_begin", `{"action":"hurry"}`, `"status":"begun"`)["op"].(string)
	d.await(op, "NEEDS_REVIEW")
	d.says(agent, "idem_complete", completed17(op, `"outcome":"done","external_id":"I-3"`), `"state":"COMMITTED"`)
	d.says(agent, "idem_complete", completed17(op, `"outcome":"unknown"`), `"state":"COMMITTED"`)
	d.says(agent, "idem_begin", `{"action":"hurry"}`, `"status":"done"`, `"external_id":"I-3"`)
}

func TestNotDoneIsNoProof(t *testing.T) {
	d := newDesk(t, memory(t))
	op := d.says(agent, "idem_begin", `{"action":"pay","step":"s1"}`, `"status":"begun"`)["op"]
	d.says(agent, "idem_complete", completed17(op, `"outcome":"not_done","text":"the form was down"`), `"state":"FAILED_FINAL"`)
	d.says(agent, "idem_begin", `{"action":"pay","step":"s1"}`, `"status":"refused"`, "Do not do it")
	op = d.says(agent, "idem_begin", `{"action":"pay","step":"s2"}`, `"status":"begun"`)["op"]
	d.says(agent, "idem_complete", completed17(op, `"outcome":"unknown"`), `"state":"NEEDS_REVIEW"`)
}

// TestOthersOperations: what is of another tenant does not exist, and what a
// server reports by itself is not for an agent to report.
func TestOthersOperations(t *testing.T) {
	d := newDesk(t, memory(t))
	op := d.says(agent, "idem_begin", invoice, `"status":"begun"`)["op"].(string)
	stranger := Caller{Tenant: "other", Task: "t1"}
	d.says(stranger, "idem_status", `{"op":"`+op+`"}`, "there is no operation")
	d.says(stranger, "idem_complete", completed17(op, `"outcome":"done"`), "there is no operation")
	d.says(stranger, "idem_task", `{}`, `"unsettled":[]`)
	d.says(agent, "idem_status", `{"op":"`+op+`"}`, `"state":"STARTED"`)

	a := d.guard.Do(t.Context(), idem.Ask{Tenant: "acme", Tool: "tickets/create", Task: "t1", Step: "s"}, idem.Effect{Run: func(context.Context, idem.Dispatch) idem.Outcome {
		return idem.Outcome{Class: idem.ClassAmbiguous, Text: "cut"}
	}})
	d.says(agent, "idem_complete", completed17(a.Op.String(), `"outcome":"done"`), "reports by itself")
	d.says(agent, "idem_status", `{"op":"`+a.Op.String()+`"}`, `"state":"NEEDS_REVIEW"`)
}

func TestNote(t *testing.T) {
	d := newDesk(t, memory(t))
	d.says(agent, "idem_note", `{"kind":"ref","name":"pr","value":"42"}`, "Noted for task t1")
	d.says(agent, "idem_task", `{}`, `"notes":[{"kind":"ref","name":"pr","value":"42"`)
	d.says(Caller{Tenant: "acme"}, "idem_note", `{"name":"n","value":"v"}`, `"isError":true`, "no task is known")
	d.says(agent, "idem_note", `{"kind":"secret","name":"n","value":"v"}`, `"isError":true`, "want one of")
}

func TestControlArguments(t *testing.T) {
	d := newDesk(t, memory(t))
	for _, c := range [][3]string{
		{"idem_begin", `{"action":"a b"}`, "1 to 100 letters"},
		{"idem_begin", `{"action":"a","arguments":[1]}`, "must be an object"},
		{"idem_begin", `{"action":"a","arguments":{"x":1,"x":2}}`, "INVALID_ARGUMENTS"},
		{"idem_status", `{"op":"x"}`, "is no id of an operation"},
		{"idem_complete", `{"op":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","outcome":"done"}`, "there is no operation"},
		{"idem_other", `{}`, "there is no tool"},
	} {
		d.says(agent, c[0], c[1], c[2])
	}
}

// TestControlDefinitions are schemas that clients can read, and none of them
// decides what an operator decides.
func TestControlDefinitions(t *testing.T) {
	for _, raw := range NewControl(ControlConfig{}).Tools() {
		var tool struct {
			Name   string
			Schema map[string]any `json:"inputSchema"`
		}
		if err := json.Unmarshal(raw, &tool); err != nil || !strings.HasPrefix(tool.Name, "idem_") || tool.Schema["type"] != "object" {
			t.Errorf("%s: %v", raw, err)
		}
		for _, word := range []string{"resolve", "grant", "approve"} {
			if strings.Contains(tool.Name, word) {
				t.Errorf("%s is not for agents", tool.Name)
			}
		}
	}
}
