package idem_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
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

// What runs again after failure_ttl is met again, though others like it had
// pushed it off the list.
func TestRunsAgainAndIsMet(t *testing.T) {
	for name, asks := range map[string][3]idem.Ask{
		"a step":        {step("s1"), occ(), step("s1")},
		"an occurrence": {inRun("r1", occ()), inRun("r1", occ()), inRun("r2", occ())},
	} {
		timed(t, name, func(t *testing.T, h *house) {
			rejected := ends(idem.Outcome{Class: idem.ClassRejected})
			h.acts(rejected, rejected, slowly(10*time.Second), applies)
			g := h.guard()
			op := h.call(g, asks[0]).Op
			h.call(g, asks[1])
			time.Sleep(h.rules.FailureTTL)
			again := make(chan idem.Answer)
			go func() { again <- h.ask(g, asks[2]) }()
			synctest.Wait()
			a := h.leave(g, asks[1], 5*time.Second)
			wantCode(t, a, idem.CodeInProgress)
			if b := <-again; a.Op != op || b.Op != op {
				t.Errorf("%s ran again as %s and was met as %s", op, b.Op, a.Op)
			}
			h.wantEffects(1)
		})
	}
}

// Named asks of equal arguments do not race each other for what they have in
// common, and none is lost from it.
func TestNamedTwinsAtOnce(t *testing.T) {
	timed(t, "64 steps, one of them unsettled", func(t *testing.T, h *house) {
		h.world.act = func(w *world, d idem.Dispatch) idem.Outcome {
			id := w.apply(d)
			if d.Record.Step == "s17" {
				return idem.Outcome{Class: idem.ClassAmbiguous}
			}
			return answered(id)
		}
		g := h.guard()
		var wg sync.WaitGroup
		answers := make([]idem.Answer, 64)
		for i := range answers {
			wg.Go(func() { answers[i] = h.ask(g, step("s"+strconv.Itoa(i))) })
		}
		wg.Wait()
		h.wantEffects(64)
		for i, a := range answers {
			if i == 17 {
				wantCode(t, a, idem.CodeNeedsReview)
			} else if a.Err != nil || a.Replayed {
				t.Errorf("step %d: replayed %v, err %v", i, a.Replayed, a.Err)
			}
		}
		a := h.ask(g, occ())
		wantCode(t, a, idem.CodeNeedsReview)
		if a.Op != answers[17].Op {
			t.Errorf("it met %s, unsettled is %s", a.Op, answers[17].Op)
		}
		h.wantEffects(64)
		h.decide(a.Op, idem.VerbCommitted)
		if a := h.ask(g, occ()); a.Err != nil || a.Replayed {
			t.Errorf("replayed %v, err %v", a.Replayed, a.Err)
		}
		h.wantEffects(65)
	})
	timed(t, "settled ones leave a short list", func(t *testing.T, h *house) {
		g := h.guard()
		var last *idem.Record
		for i := range 300 {
			last = h.ask(g, step("s"+strconv.Itoa(i))).Record
		}
		s, err := h.store.Load(context.Background(), idem.Ref{Kind: idem.KindSlot, ID: last.Slot})
		if err != nil {
			t.Fatal(err)
		}
		if slot, _ := s.Slot(last.Slot); len(slot.Open) == 0 || len(slot.Open) > 32 {
			t.Errorf("%d twins are kept", len(slot.Open))
		}
	})
}
