package mcp

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// toolsOfCases are the tools that differ from a plain write.
func toolsOfCases(t *testing.T) []policy.Tool {
	t.Helper()
	tool := func(name string, change func(*policy.Tool)) policy.Tool {
		p := policy.DefaultTool()
		p.Match = "fake/" + name
		p.Retry.Initial = time.Millisecond
		change(&p)
		return p
	}
	rule := func(text string, class idem.Class) []policy.Rule {
		q, err := policy.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		return []policy.Rule{{If: q, Class: class}}
	}
	return []policy.Tool{
		tool("waits-told", func(p *policy.Tool) { p.Cancel = policy.CancelForward }),
		tool("waits-briefly", func(p *policy.Tool) { p.Wait = 50 * time.Millisecond }),
		tool("waits-each", func(p *policy.Tool) { p.Repeat = idem.RepeatEachCall }),
		tool("waits-timed", func(p *policy.Tool) { p.Timeout, p.Wait = 100*time.Millisecond, 50*time.Millisecond }),
		tool("does-keyed", func(p *policy.Tool) { p.Forward.Argument = "idempotency_key" }),
		tool("lies-known", func(p *policy.Tool) { p.Rules = rule(`.content[0].text | startswith("Error")`, idem.ClassAmbiguous) }),
		tool("refuses-passing", func(p *policy.Tool) { p.Rules = rule(`.isError`, idem.ClassThrottled) }),
	}
}

func named(task, step string) string {
	return fmt.Sprintf(`"mcp-idem/task":%q,"mcp-idem/step":%q`, task, step)
}

const (
	committed = `"mcp-idem/state":"COMMITTED"`
	replay    = `"mcp-idem/replayed":true`
	isError   = `"isError":true`
)

// TestCancelled: a cancelled call is not answered, the next one is served, and the
// outcome is there for who asks again. The server is told where the policy wants
// that.
func TestCancelled(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		if d.visitor != nil && d.stateless {
			return // who has no session cancels by leaving
		}
		for i, tool := range []string{"waits", "waits-told"} {
			task := "t-" + tool
			args := fmt.Sprintf(`{"n":"%d"}`, i)
			id := fmt.Sprintf("1%d", i)
			gone := d.ask(id, tool, args, named(task, "s"), "")
			d.reached(args)
			d.wantState(task, idem.StateStarted) // the row was there first
			d.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
			d.ask("2", "does", `{"then":"`+tool+`"}`, named(task+"-next", "s"), "").answer(committed)
			gone.unanswered()
			if tool == "waits-told" {
				(&rig{t: t, log: d.log}).waitSeen("cancelled {", 1)
			} else if strings.Contains(d.seen(), "cancelled") {
				t.Error("the cancellation was passed on")
			}
			d.wantState(task, idem.StateStarted)
			d.open(fmt.Sprint(i))
			d.wantState(task, idem.StateCommitted)
			d.ask("3", tool, args, named(task, "s"), "").answer(committed, replay, `"waited"`)
			d.wantCalls(args, 1)
		}
	})
}

// TestClientLeaves: a client goes away in the middle of its call, without a word,
// and finds the outcome in another connection, under another id. In the stateless
// protocol leaving cancels, and a policy may want the server told.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		other := d.again()
		for i, tool := range []string{"waits", "waits-told"} {
			task := "t-" + tool
			args := fmt.Sprintf(`{"n":"%d"}`, i)
			gone := d.ask("1", tool, args, named(task, "s"), "")
			d.reached(args)
			gone.leave()
			met := other.ask(`"b"`, tool, args, named(task, "s"), "") // while it runs
			other.ask("2", "does", `{"then":"`+tool+`"}`, named(task+"-next", "s"), "").answer(committed)
			if d.visitor != nil && d.stateless && tool == "waits-told" {
				(&rig{t: t, log: d.log}).waitSeen("cancelled {", 1)
			}
			d.open(fmt.Sprint(i))
			met.answer(committed, `"waited"`)
			d = d.again()
			d.ask("7", tool, args, named(task, "s"), "").answer(committed, replay, `"waited"`)
			d.wantState(task, idem.StateCommitted)
			d.wantCalls(args, 1)
		}
	})
}

// TestIdsOfAnswers: an answer has the id of its request, of the same type and the
// same text, whoever asked first.
func TestIdsOfAnswers(t *testing.T) {
	t.Parallel()
	eachDoor(t, nil, func(t *testing.T, d *door) {
		other := d.again()
		for i, id := range []string{`"7"`, `7`, `9007199254740993`, `"9007199254740993"`, `""`, `-1`, `"\u00e9"`} {
			got := d.ask(id, "does", `{}`, named("t", "s"), "").answer(committed)
			if strings.Contains(got, replay) != (i > 0) {
				t.Errorf("%s", got)
			}
			other.ask(id, "does", `{}`, named("t", "s"), "").answer(committed, replay)
		}
		d.wantCalls(`{}`, 1)
	})
}

// TestKeysOfModels: a model makes another key on each try. Where the policy
// forwards ours in that argument, it counts for nothing; elsewhere it is part of
// what is asked for, and refused under the same step.
func TestKeysOfModels(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		for i := range 3 {
			args := fmt.Sprintf(`{"a":1,"idempotency_key":"model-%d"}`, i)
			got := d.ask(fmt.Sprint(i), "does-keyed", args, named("t", "s"), "").answer(committed)
			if ours := `call does-keyed {"a":1,"idempotency_key":"` + between(got, `"mcp-idem/op":"`, `"`) + `"}`; !strings.Contains(d.seen(), ours) {
				t.Errorf("the server did not get %s", ours)
			}
			plain := d.ask(fmt.Sprintf("1%d", i), "does", args, named("t", "s2"), "")
			if i == 0 {
				plain.answer(committed)
			} else {
				plain.answer("IDEMPOTENCY_PARAMETER_MISMATCH", isError)
			}
		}
		if n := strings.Count(d.seen(), "call "); n != 2 {
			t.Errorf("the server saw:\n%s", d.seen())
		}
	})
}

var newKey = regexp.MustCompile(`(?i)(new|another|different|fresh|other) (idempotency )?key|try again|retry`)

// TestKeysInUse: a key that is in use and a key that was used for something else
// are two refusals, and neither tells a model to go on under another one. It may
// stand in _meta or beside it.
func TestKeysInUse(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		first := d.ask("1", "waits-briefly", `{"n":"1"}`, `"idempotencyKey":"k"`, "")
		d.reached(`{"n":"1"}`)
		other := d.again()
		for id, refused := range map[string]*request{
			"OPERATION_IN_PROGRESS":          other.ask("2", "waits-briefly", `{"n":"1"}`, "", `"idempotencyKey":"k"`),
			"IDEMPOTENCY_PARAMETER_MISMATCH": other.ask("3", "waits-briefly", `{"n":"2"}`, "", `"idempotencyKey":"k"`),
		} {
			got := refused.answer(`"mcp-idem/code":"`+id+`"`, isError)
			if s := newKey.FindString(got); s != "" {
				t.Errorf("it says %q: %s", s, got)
			}
		}
		d.open("1")
		first.answer(committed)
		other.ask("4", "waits-briefly", `{"n":"1"}`, "", `"idempotencyKey":"k"`).answer(committed, replay)
		other.ask("5", "waits-briefly", `{"n":"1"}`, `"mcp-idem/key":"k"`, "").answer(committed, `"waited"`) // another kind of key
		d.wantCalls(`{"n":"1"}`, 2)
		d.wantCalls(`{"n":"2"}`, 0)
	})
}

// TestThreeTimesInOneTurn: a model asks for the same three times at once, under
// three ids of its own. That is one effect, unless each has a step or the policy
// takes each for itself.
func TestThreeTimesInOneTurn(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		for _, c := range []struct {
			name, tool, meta string
			effects          int
		}{
			{"no steps", "waits", `"mcp-idem/task":"t1","callId":"call_%d"`, 1},
			{"one step", "waits", `"mcp-idem/task":"t2","mcp-idem/step":"s","callId":"call_%d"`, 1},
			{"three steps", "waits", `"mcp-idem/task":"t3","mcp-idem/step":"s%d"`, 3},
			{"each for itself", "waits-each", `"mcp-idem/task":"t4","callId":"call_%d"`, 3},
		} {
			args := `{"n":"` + strings.ReplaceAll(c.name, " ", "-") + `"}`
			var all []*request
			for i := range 3 {
				all = append(all, d.ask(fmt.Sprintf(`"%s %d"`, c.name, i), c.tool, args, fmt.Sprintf(c.meta, i), ""))
			}
			(&rig{t: t, log: d.log}).waitSeen(" "+args+"\n", c.effects)
			d.open(strings.ReplaceAll(c.name, " ", "-"))
			ops := map[string]bool{}
			for _, r := range all {
				ops[between(r.answer(committed, `"waited"`), `"mcp-idem/op":"`, `"`)] = true
			}
			if len(ops) != c.effects {
				t.Errorf("%s: %d operations, want %d", c.name, len(ops), c.effects)
			}
			d.wantCalls(args, c.effects)
		}
	})
}

// TestParkedCalls: two calls wait for a person, and are continued in the other
// order. Each gets its own end.
func TestParkedCalls(t *testing.T) {
	t.Parallel()
	eachDoor(t, nil, func(t *testing.T, d *door) {
		if !d.stateless {
			return // such calls are of that protocol
		}
		ops := map[int]string{}
		for _, n := range []int{1, 2} {
			got := d.ask(fmt.Sprint(n), "asks", fmt.Sprintf(`{"n":%d}`, n), named("t", fmt.Sprint("s", n)), "").answer("input_required", fmt.Sprintf(`"of %d"`, n))
			ops[n] = between(got, `"mcp-idem/op":"`, `"`)
		}
		for _, n := range []int{2, 1} {
			args := fmt.Sprintf(`{"n":%d}`, n)
			responses := fmt.Sprintf(`"requestState":"of %d","inputResponses":{"sure":{"action":"accept"}}`, n)
			got := d.ask(fmt.Sprintf("1%d", n), "asks", args, named("t", fmt.Sprint("s", n)), responses).answer(committed, `"mcp-idem/op":"`+ops[n]+`"`, fmt.Sprintf(`did {\"n\":%d}`, n))
			if strings.Contains(got, replay) {
				t.Errorf("a replay: %s", got)
			}
			d.ask(fmt.Sprintf("2%d", n), "asks", args, named("t", fmt.Sprint("s", n)), "").answer(committed, replay, `"mcp-idem/op":"`+ops[n]+`"`)
			d.wantCalls(args, 1)
		}
	})
}

// TestRefusedRoutes: what is refused leaves no row, and nothing is sent.
func TestRefusedRoutes(t *testing.T) {
	t.Parallel()
	eachDoor(t, nil, func(t *testing.T, d *door) {
		d.ask("1", "does", `{}`, named("t", "s"), `"task":{"ttl":1}`).answer("INVALID_ARGUMENTS", isError)
		d.ask("2", "does", `{"a":1,"a":2}`, named("t", "s"), "").answer("INVALID_ARGUMENTS", isError)
		d.ask("3", "does", `{}`, named("t", "s")+`,"mcp-idem/key":""`, "").answer("INVALID_ARGUMENTS", isError)
		if d.rig != nil {
			d.say(`[{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"does","_meta":{` + named("t", "s") + `}}}]`)
			d.rig.expect(`-32600`, "batch")
		} else {
			d.visitor.post(400, `[{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"does","_meta":{`+named("t", "s")+`}}}]`, "-32600", "batch")
		}
		if all := d.records("t"); len(all) > 0 || d.seen() != "" {
			t.Errorf("rows %+v; the server saw:\n%s", all, d.seen())
		}
	})
}

// TestStoredOutcomes: what a second ask under the same step gets, after every kind
// of end.
func TestStoredOutcomes(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		for _, c := range []struct {
			tool          string
			first, second []string
			never         string // in neither
			calls         int
		}{
			{"refuses", []string{"is closed", isError, `"mcp-idem/state":"FAILED_FINAL"`}, []string{"is closed", isError, replay}, committed, 1},
			{"refuses-passing", []string{"accepted", committed, `"mcp-idem/attempt":2`}, []string{"accepted", replay}, isError, 2},
			{"lies", []string{"Error 500", committed}, []string{"Error 500", replay}, isError, 1},
			{"lies-known", []string{"NEEDS_REVIEW", isError}, []string{"NEEDS_REVIEW", isError}, committed, 1},
			{"breaks", []string{"NEEDS_REVIEW", isError}, []string{"NEEDS_REVIEW", isError}, "FAILED", 1}, // it says of itself that it is idempotent
			{"big", []string{"xxx", committed}, []string{"SHA-256", replay}, isError, 1},
		} {
			args := fmt.Sprintf(`{"c":%q}`, c.tool)
			for i, want := range [][]string{c.first, c.second} {
				got := d.ask(fmt.Sprint(i+1), c.tool, args, named(c.tool, "s"), "").answer(want...)
				if strings.Contains(got, c.never) {
					t.Errorf("%s: %s in %.1000s", c.tool, c.never, got)
				}
			}
			d.wantCalls(args, c.calls)
		}
	})
}

// TestBusyServer: a server answers 503 and is well again. Where the policy trusts
// that to mean that nothing was done, the call is sent again; else a person decides,
// and no ask sends it.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	status, err := policy.Compile(`.http_status == 503`)
	if err != nil {
		t.Fatal(err)
	}
	trusting := policy.DefaultTool()
	trusting.Rules = []policy.Rule{{If: status, Class: idem.ClassNotSent, Trust: true}}
	trusting.Retry.Initial = time.Millisecond
	for _, web := range []bool{false, true} {
		for _, tools := range [][]policy.Tool{nil, {trusting}} {
			t.Run(fmt.Sprintf("over HTTP %v, trusted %v", web, tools != nil), func(t *testing.T) {
				t.Parallel()
				s := newWebServer(t)
				d := openDoor(t, "", web, false, tools, Server{Name: "fake", URL: s.URL, Log: testLog(t)})
				want, calls := []string{"NEEDS_REVIEW", isError}, 1
				if tools != nil {
					want, calls = []string{committed, `"ok"`}, 2
				}
				for i := range 2 {
					d.ask(fmt.Sprint(i), "busy-at-first", `{}`, named("t", "s"), "").answer(want...)
				}
				if n := s.count("busy-at-first"); n != calls {
					t.Errorf("%d calls reached it, want %d", n, calls)
				}
			})
		}
	}
}

// TestTimeoutIsNoFailure: what a caller is told after the policy's timeout is not
// what is recorded when the answer comes.
func TestTimeoutIsNoFailure(t *testing.T) {
	t.Parallel()
	eachDoor(t, toolsOfCases(t), func(t *testing.T, d *door) {
		const args = `{"n":"late"}`
		for i := range 2 {
			got := d.ask(fmt.Sprint(i), "waits-timed", args, named("t", "s"), "").answer(isError)
			if !strings.Contains(got, "OUTCOME_UNKNOWN") && !strings.Contains(got, "NEEDS_REVIEW") || strings.Contains(got, "FAILED") {
				t.Errorf("%s", got)
			}
		}
		d.open("late")
		d.wantState("t", idem.StateCommitted)
		d.ask("3", "waits-timed", args, named("t", "s"), "").answer(committed, replay, `"waited"`)
		d.wantCalls(args, 1)
	})
}

// TestCallIdsOfClients: a client whose session is gone sends the same call again in
// the next one, with its own call id and another request id, and meets what it
// asked for before. On a connection that has its answer, the same call id is another
// call, for some models count them from zero again.
func TestCallIdsOfClients(t *testing.T) {
	t.Parallel()
	eachDoor(t, nil, func(t *testing.T, d *door) {
		if d.stateless {
			return // no session can be gone
		}
		first, next := d, d.again()
		for name, meta := range map[string]string{
			"Codex":       `"threadId":"th-1","callId":"call_1","sessionId":"s-1","progressToken":1`,
			"Claude Code": `"mcp-idem/task":"c-1","claudecode/toolUseId":"toolu_1","progressToken":1`,
		} {
			args := fmt.Sprintf(`{"n":%q}`, name)
			gone := first.ask("1", "waits", args, meta, "")
			first.reached(args)
			met := next.ask("7", "waits", args, strings.Replace(meta, `"progressToken":1`, `"progressToken":"p-7"`, 1), "")
			d.open(name)
			op := between(met.answer(committed, `"waited"`), `"mcp-idem/op":"`, `"`)
			gone.answer(committed, op)
			d.wantCalls(args, 1)
			first.ask("2", "waits", args, meta, "").answer(committed)
			d.wantCalls(args, 2)
		}
	})
}
