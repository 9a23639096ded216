package idem_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func TestRetries(t *testing.T) {
	for _, c := range []idem.Class{idem.ClassNotSent, idem.ClassThrottled} {
		timed(t, string(c)+": within the wait, the same key", func(t *testing.T, h *house) {
			h.acts(ends(idem.Outcome{Class: c}), ends(idem.Outcome{Class: c}), applies)
			wantResult(t, h.ask(h.guard(), step("s1")), first, false)
			h.wantDispatches(3)
			for _, k := range h.world.keys {
				if k != h.world.keys[0] {
					t.Errorf("keys %v", h.world.keys)
				}
			}
		})
	}
	timed(t, "beyond the wait it is scheduled, over a restart too", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassThrottled, RetryAfter: 10 * time.Second}), applies)
		a := h.ask(h.guard(), step("s1"))
		wantCode(t, a, idem.CodeRetryScheduled)
		if got := a.Err.RetryAt.Sub(a.Record.UpdatedAt); got != 10*time.Second {
			t.Errorf("planned %s from now", got)
		}
		h.kill()
		g := h.guard()
		wantCode(t, h.ask(g, step("s1")), idem.CodeRetryScheduled)
		h.wantDispatches(1)
		time.Sleep(9 * time.Second)
		wantResult(t, h.ask(g, step("s1")), first, false)
		if r := h.record(a.Op); r.Round.Attempts != 2 || r.Last != 2 {
			t.Errorf("round %+v", r.Round)
		}
	})
	timed(t, "attempts are counted over restarts, then it is final", func(t *testing.T, h *house) {
		h.rules.Retry.Delay = func(int, time.Duration) time.Duration { return 5 * time.Second }
		h.acts(ends(idem.Outcome{Class: idem.ClassNotSent, Text: "refused"}))
		for range 2 {
			wantCode(t, h.ask(h.guard(), step("s1")), idem.CodeRetryScheduled)
			h.kill()
			time.Sleep(5 * time.Second)
		}
		g := h.guard()
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeFailed)
		if r := h.wantState(a.Op, idem.StateFailedFinal); r.Reason != idem.ReasonRetryExhausted || r.Absence != idem.AbsenceProven {
			t.Errorf("reason %s, absence %s", r.Reason, r.Absence)
		}
		wantCode(t, h.ask(g, step("s1")), idem.CodeFailed)
		h.wantDispatches(3)
		h.wantEffects(0)
	})
	timed(t, "elapsed time is counted from the first attempt", func(t *testing.T, h *house) {
		h.rules.Retry.MaxAttempts = 100
		h.rules.Retry.Delay = func(int, time.Duration) time.Duration { return 50 * time.Second }
		h.acts(ends(idem.Outcome{Class: idem.ClassNotSent}))
		for range 2 {
			wantCode(t, h.ask(h.guard(), step("s1")), idem.CodeRetryScheduled)
			h.kill()
			time.Sleep(50 * time.Second)
		}
		wantCode(t, h.ask(h.guard(), step("s1")), idem.CodeFailed) // the fourth would begin after 2 min
		h.wantDispatches(3)
	})
	timed(t, "the time that nobody was there is not spent on attempts", func(t *testing.T, h *house) {
		h.reconcile(time.Second)
		op := h.crashed(step("s1"), false)
		time.Sleep(2 * h.rules.Retry.MaxElapsed)
		wantResult(t, h.ask(h.guard(), step("s1")), first, false)
		if r := h.record(op); r.Last != 2 {
			t.Errorf("%d attempts", r.Last)
		}
		h.wantEffects(1)
	})
	timed(t, "Retry-After past max_elapsed is honoured", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassThrottled, RetryAfter: time.Hour}), applies)
		g := h.guard()
		wantCode(t, h.ask(g, step("s1")), idem.CodeRetryScheduled)
		time.Sleep(time.Hour)
		wantResult(t, h.ask(g, step("s1")), first, false)
	})
}

func TestFailureTTL(t *testing.T) {
	tests := []struct {
		name  string
		ends  idem.Outcome
		again bool // a fresh attempt once failure_ttl is over
	}{
		{"rejected", idem.Outcome{Class: idem.ClassRejected, Result: []byte(`{"code":-32602}`), Kind: idem.ResultError}, true},
		{"claimed only", idem.Outcome{Class: idem.ClassReported, Result: []byte("isError"), Kind: idem.ResultValue}, false},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.acts(ends(tt.ends), applies)
			g := h.guard()
			wantResult(t, h.ask(g, step("s1")), string(tt.ends.Result), false)
			time.Sleep(h.rules.FailureTTL - time.Second)
			wantResult(t, h.ask(g, step("s1")), string(tt.ends.Result), true)
			h.wantDispatches(1)
			time.Sleep(2 * time.Second)
			if tt.again {
				wantResult(t, h.ask(g, step("s1")), first, false)
			} else {
				wantResult(t, h.ask(g, step("s1")), string(tt.ends.Result), true)
			}
		})
	}
}

func TestResend(t *testing.T) {
	timed(t, "an ambiguous end is sent again under the same key", func(t *testing.T, h *house) {
		h.rules.Resend = true
		h.acts(ambiguous(true), applies)
		h.ask(h.guard(), step("s1"))
		h.wantDispatches(2)
		if h.world.keys[0] != h.world.keys[1] {
			t.Error("two keys")
		}
	})
	timed(t, "and no more often than the schedule says", func(t *testing.T, h *house) {
		h.rules.Resend = true
		h.acts(ends(idem.Outcome{Class: idem.ClassAmbiguous}))
		g := h.guard()
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeNeedsReview)
		h.wantDispatches(3)
		if r := h.record(a.Op); r.Reason != idem.ReasonRetryExhausted {
			t.Errorf("reason %s", r.Reason)
		}
	})
	timed(t, "never said to be absent while it waits", func(t *testing.T, h *house) {
		h.rules.Resend = true
		h.rules.Retry.Delay = func(int, time.Duration) time.Duration { return time.Minute }
		h.acts(ambiguous(true), applies)
		a := h.ask(h.guard(), step("s1"))
		wantCode(t, a, idem.CodeRetryScheduled)
		if want := "Whether it was applied is not known."; len(a.Err.Text) < len(want) || a.Err.Text[:len(want)] != want {
			t.Errorf("text %q", a.Err.Text)
		}
	})
}

func TestBelowTheAnswer(t *testing.T) {
	timed(t, "a panic is an unknown outcome", func(t *testing.T, h *house) {
		h.acts(func(w *world, d idem.Dispatch) idem.Outcome { w.apply(d); panic("boom") })
		g := h.guard()
		a := h.ask(g, step("s1"))
		wantCode(t, a, idem.CodeNeedsReview)
		if r := h.wantState(a.Op, idem.StateNeedsReview); r.Class != idem.ClassAmbiguous || !r.MayHaveApplied() {
			t.Errorf("class %s", r.Class)
		}
		wantCode(t, h.ask(g, step("s1")), idem.CodeNeedsReview)
		h.wantEffects(1)
	})
	timed(t, "input_required parks, a continuation claims again", func(t *testing.T, h *house) {
		h.acts(ends(idem.Outcome{Class: idem.ClassInterim, Result: []byte("ask"), Kind: idem.ResultValue, ParkedOn: []byte{1}}),
			ends(idem.Outcome{Class: idem.ClassNotSent}), ends(idem.Outcome{Class: idem.ClassNotSent}), applies)
		g := h.guard()
		a := h.ask(g, step("s1"))
		wantResult(t, a, "ask", false)
		if r := a.Record; r == nil || r.State != idem.StatePlanned || r.Reason != idem.ReasonInputRequired || a.Op != r.Op {
			t.Errorf("the answer carries %s", show(r))
		}
		if r := h.wantState(a.Op, idem.StatePlanned); r.Round.Attempts != 0 || r.ResultKind != idem.ResultNone || string(r.ParkedOn) != "\x01" {
			t.Errorf("round %+v, result %s, parked on %v", r.Round, r.Result, r.ParkedOn)
		}
		wantResult(t, h.ask(g, step("s1")), first, false)
		h.wantDispatches(4) // three attempts of the schedule after the interim one
	})
	timed(t, "a result over the limit", func(t *testing.T, h *house) {
		h.rules.ResultLimit = 5
		g := h.guard()
		wantResult(t, h.ask(g, step("s1")), first, false) // at hand still
		a := h.ask(g, step("s1"))
		if r := a.Record; a.Err != nil || a.Result != nil || !a.Replayed || r.State != idem.StateCommitted || r.ResultSize != int64(len(first)) || len(r.ResultDigest) != 32 || r.ExternalID != "T-1" {
			t.Errorf("err %v, record %+v", a.Err, r)
		}
		h.wantEffects(1)
	})
}

func TestFailureOverTheLimit(t *testing.T) {
	for _, c := range []idem.Class{idem.ClassReported, idem.ClassRejected} {
		timed(t, string(c), func(t *testing.T, h *house) {
			const said = `{"content":[{"type":"text","text":"no such customer"}],"isError":true}`
			h.rules.ResultLimit = 10
			h.acts(ends(idem.Outcome{Class: c, Result: []byte(said), Kind: idem.ResultValue, Text: "no such customer"}))
			g := h.guard()
			wantResult(t, h.ask(g, step("s1")), said, false) // at hand still
			b := h.ask(g, step("s1"))
			wantCode(t, b, idem.CodeFailed)
			if r := b.Record; b.Err == nil || r.State != idem.StateFailedFinal || r.ResultSize != int64(len(said)) || !strings.Contains(b.Err.Text, "no such customer") {
				t.Errorf("err %v, record %s", b.Err, show(r))
			}
			h.wantDispatches(1)
		})
	}
}

func TestRetryThatCannotBeReadied(t *testing.T) {
	tests := []struct {
		name   string
		resend bool
		ends   func(*world, idem.Dispatch) idem.Outcome
		want   idem.Code
	}{
		{"after one that may have applied", true, ambiguous(true), idem.CodeUnknown},
		{"after one that was not sent", false, ends(idem.Outcome{Class: idem.ClassNotSent}), idem.CodeFailed},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			h.rules.Resend = tt.resend
			h.acts(tt.ends, applies)
			e, n := h.effect(), 0
			e.Prepare = func(context.Context) (idem.Site, error) {
				if n++; n > 1 {
					return idem.Site{}, errors.New("it does not come back")
				}
				return idem.Site{}, nil
			}
			a := h.guard().Do(context.Background(), step("s1"), e)
			wantCode(t, a, tt.want)
			if a.Record == nil || a.Op == (idem.ID{}) {
				t.Errorf("op %s, record %s", a.Op, show(a.Record))
			}
			h.wantDispatches(1)
		})
	}
}
