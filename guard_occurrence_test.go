package idem_test

import (
	"sync"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

const first, second = `{"id":"T-1"}`, `{"id":"T-2"}`

func TestOccurrences(t *testing.T) {
	timed(t, "answered on the same connection: the next is intended", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		wantResult(t, h.call(g, on(c, occ())), first, false)
		wantResult(t, h.call(g, on(c, occ())), second, false)
		h.wantEffects(2)
	})
	timed(t, "in flight together: one effect", func(t *testing.T, h *house) {
		h.acts(slowly(100 * time.Millisecond))
		g := h.guard()
		var wg sync.WaitGroup
		for range 5 {
			c := g.Conn()
			wg.Go(func() {
				if a := h.call(g, on(c, occ())); a.Err != nil || string(a.Result) != first {
					t.Errorf("result %s, err %v", a.Result, a.Err)
				}
			})
		}
		wg.Wait()
		h.wantEffects(1)
	})
	timed(t, "each_call: every ask is its own, in flight too", func(t *testing.T, h *house) {
		h.rules.Repeat = idem.RepeatEachCall
		h.acts(slowly(100 * time.Millisecond))
		g := h.guard()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { h.call(g, occ()) })
		}
		wg.Wait()
		h.wantEffects(3)
	})
	timed(t, "replay: always the first", func(t *testing.T, h *house) {
		h.rules.Repeat = idem.RepeatReplay
		g := h.guard()
		c := g.Conn()
		for range 3 {
			h.call(g, on(c, occ()))
		}
		h.wantEffects(1)
	})
	timed(t, "refuse: once, then no more", func(t *testing.T, h *house) {
		h.rules.Repeat = idem.RepeatRefuse
		g := h.guard()
		lost := h.ask(g, on(g.Conn(), occ())) // its answer is not delivered
		wantResult(t, lost, first, false)
		c := g.Conn()
		wantResult(t, h.call(g, on(c, occ())), first, true)
		wantCode(t, h.call(g, on(c, occ())), idem.CodeRepeatRefused)
		h.wantEffects(1)
	})
	timed(t, "a failure that was delivered ends its occurrence", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassReported, Result: []byte("no"), Kind: idem.ResultValue}), applies)
		g := h.guard()
		c := g.Conn()
		wantResult(t, h.call(g, on(c, occ())), "no", false)
		wantResult(t, h.call(g, on(c, occ())), first, false)
	})
	timed(t, "another task, another operation", func(t *testing.T, h *house) {
		g := h.guard()
		other := occ()
		other.Task = "t2"
		h.ask(g, occ())
		wantResult(t, h.ask(g, other), second, false)
	})
	timed(t, "no task: each ask is its own", func(t *testing.T, h *house) {
		g := h.guard()
		a := occ()
		a.Task = ""
		h.ask(g, a)
		wantResult(t, h.ask(g, a), second, false)
	})
}

func TestUnsettledTwins(t *testing.T) {
	timed(t, "an unknown occurrence is met by any ask like it", func(t *testing.T, h *house) {
		h.acts(ambiguous(true))
		g := h.guard()
		c := g.Conn()
		wantCode(t, h.call(g, on(c, occ())), idem.CodeNeedsReview)
		wantCode(t, h.call(g, on(c, occ())), idem.CodeNeedsReview)
		h.wantDispatches(1)
	})
	timed(t, "a step's too", func(t *testing.T, h *house) {
		h.acts(ambiguous(true))
		g := h.guard()
		wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
		wantCode(t, h.ask(g, occ()), idem.CodeNeedsReview)
		h.wantDispatches(1)
		wantResult(t, h.ask(g, step("s2")), second, false) // the host's steps are trusted
	})
	timed(t, "more than the slot's list is long", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous}))
		g := h.guard()
		for i := range 20 {
			wantCode(t, h.ask(g, step(string(rune('a'+i)))), idem.CodeNeedsReview)
		}
		wantCode(t, h.ask(g, occ()), idem.CodeNeedsReview)
		h.wantDispatches(20)
	})
}

func TestRuns(t *testing.T) {
	timed(t, "a new run replays in order", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ()))
		h.call(g, on(c, occ()))
		wantResult(t, h.call(g, inRun("r2", on(c, occ()))), first, true)
		wantResult(t, h.call(g, inRun("r2", on(c, occ()))), second, true)
		wantResult(t, h.call(g, inRun("r2", on(c, occ()))), `{"id":"T-3"}`, false)
		wantResult(t, h.call(g, on(c, occ())), `{"id":"T-3"}`, true) // the first run lacks it
		h.wantEffects(3)
	})
	timed(t, "a new process or connection begins none", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ()))
		c.Heard()
		time.Sleep(1100 * time.Millisecond)
		h.kill()
		g = h.guard()
		wantResult(t, h.call(g, on(g.Conn(), occ())), second, false)
	})
}
