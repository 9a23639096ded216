package idem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// in is the effect in an incarnation of the upstream's process.
func (h *house) in(incarnation string) idem.Effect {
	e := h.effect()
	e.Prepare = func(context.Context) (idem.Site, error) { return idem.Site{Incarnation: incarnation}, nil }
	return e
}

func TestStateInTheProcess(t *testing.T) {
	ctx := context.Background()
	timed(t, "nothing is replayed into the next process", func(t *testing.T, h *house) {
		h.rules.Process = true
		g := h.guard()
		wantResult(t, g.Do(ctx, step("s1"), h.in("i1")), first, false)
		wantResult(t, g.Do(ctx, step("s1"), h.in("i1")), first, true)
		wantResult(t, g.Do(ctx, step("s1"), h.in("i2")), second, false)
	})
	timed(t, "what is unsettled ends with it", func(t *testing.T, h *house) {
		h.rules.Process = true
		unknown := ends(idem.Outcome{Class: idem.ClassAmbiguous})
		h.acts(unknown, ends(idem.Outcome{Class: idem.ClassThrottled, RetryAfter: time.Hour}), ends(idem.Outcome{Class: idem.ClassInterim}), unknown)
		g := h.guard()
		var lost []idem.ID
		for _, s := range []string{"unknown", "retryable", "parked"} {
			lost = append(lost, g.Do(ctx, step(s), h.in("i1")).Op)
		}
		other := g.Do(ctx, step("s1"), h.in("i2"))
		if err := g.LostProcess(ctx, "default", "tickets", "i1"); err != nil {
			t.Fatal(err)
		}
		for _, op := range lost {
			if r := h.wantState(op, idem.StateFailedFinal); r.Reason != idem.ReasonLostWithProcess || r.Absence == idem.AbsenceProven {
				t.Errorf("reason %s, absence %s", r.Reason, r.Absence)
			}
		}
		h.wantState(other.Op, idem.StateNeedsReview)
		time.Sleep(time.Hour)
		wantCode(t, g.Do(ctx, step("unknown"), h.in("i1")), idem.CodeFailed)
		h.wantDispatches(4)
	})
	timed(t, "an attempt under way ends with it", func(t *testing.T, h *house) {
		h.rules.Process = true
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous, Ended: idem.EndByGroup, Lost: true}))
		a := h.guard().Do(ctx, step("s1"), h.in("i1"))
		wantCode(t, a, idem.CodeFailed)
		if r := h.record(a.Op); r.Reason != idem.ReasonLostWithProcess {
			t.Errorf("reason %s", r.Reason)
		}
	})
	timed(t, "it changed between the question and the claim", func(t *testing.T, h *house) {
		h.rules.Process = true
		e, n := h.effect(), 0
		e.Prepare = func(context.Context) (idem.Site, error) {
			n++
			return idem.Site{Incarnation: string(rune('0' + n))}, nil
		}
		wantCode(t, h.guard().Do(ctx, step("s1"), e), idem.CodeFailed)
		h.wantDispatches(0)
	})
	timed(t, "an upstream that cannot be readied", func(t *testing.T, h *house) {
		e := h.effect()
		e.Prepare = func(context.Context) (idem.Site, error) { return idem.Site{}, errors.New("no such command") }
		wantCode(t, h.guard().Do(ctx, step("s1"), e), idem.CodeFailed)
		h.wantDispatches(0)
		if n := len(h.list(idem.Query{})); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestStateOfALostProcess(t *testing.T) {
	group := func(h *house) idem.Effect {
		e := h.effect()
		e.Prepare = func(context.Context) (idem.Site, error) {
			return idem.Site{Incarnation: "i1", Group: idem.Group{PGID: 7, Start: 1}}, nil
		}
		return e
	}
	for _, process := range []bool{true, false} {
		timed(t, map[bool]string{true: "what was not sent is not retried", false: "durable state takes a retry"}[process], func(t *testing.T, h *house) {
			h.rules.Process = process
			h.acts(ends(idem.Outcome{Class: idem.ClassNotSent, Lost: true}), applies)
			a := h.guard().Do(context.Background(), step("s1"), h.in("i1"))
			if !process {
				wantResult(t, a, first, false)
				return
			}
			wantCode(t, a, idem.CodeFailed)
			if r := h.wantState(a.Op, idem.StateFailedFinal); r.Reason != idem.ReasonLostWithProcess {
				t.Errorf("reason %s", r.Reason)
			}
			h.wantDispatches(1)
		})
	}
	timed(t, "what is unsettled ends with the gateway that led it", func(t *testing.T, h *house) {
		h.rules.Process, h.rules.Timeout = true, time.Second
		h.acts(ends(idem.Outcome{Class: idem.ClassThrottled, RetryAfter: time.Hour}), ends(idem.Outcome{Class: idem.ClassInterim}), h.hang(true))
		g := h.guard()
		var ops []idem.ID
		for _, s := range []string{"retryable", "parked", "timed out"} {
			ops = append(ops, g.Do(context.Background(), step(s), group(h)).Op)
		}
		h.kill()
		h.recovers(h.guard(), "tickets")
		time.Sleep(time.Minute)
		for _, op := range ops {
			if r := h.wantState(op, idem.StateFailedFinal); r.Reason != idem.ReasonLostWithProcess {
				t.Errorf("%s: reason %q", r.Step, r.Reason)
			}
		}
	})
	timed(t, "a living gateway's stays", func(t *testing.T, h *house) {
		h.rules.Process = true
		h.acts(ends(idem.Outcome{Class: idem.ClassThrottled, RetryAfter: time.Hour}))
		a := h.guard().Do(context.Background(), step("s1"), group(h))
		h.recovers(h.guard(), "tickets")
		time.Sleep(time.Minute)
		h.wantState(a.Op, idem.StateFailedRetryable)
	})
}
