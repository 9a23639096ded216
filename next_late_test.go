package idem_test

import (
	"errors"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// life drives one record through Next; each event comes an hour after the one
// before.
type life struct {
	t *testing.T
	r *idem.Record
	s idem.Terms
}

func newLife(t *testing.T) *life {
	return &life{t: t, r: &idem.Record{}, s: idem.Terms{Query: true, Settle: time.Second, Every: time.Minute, GiveUp: time.Hour * 1000,
		MaxAttempts: 5, Backoff: time.Second, FailureTTL: time.Minute, Retention: time.Hour * 10000}}
}

func (l *life) when() idem.When { return idem.When{At: l.r.UpdatedAt.Add(time.Hour)} }

func (l *life) do(ev idem.Event) *life {
	l.t.Helper()
	n, err := idem.Next(l.r, ev)
	if err != nil {
		l.t.Fatalf("%T: %v", ev, err)
	}
	l.r = n
	return l
}

func (l *life) refused(ev idem.Event) {
	l.t.Helper()
	if n, err := idem.Next(l.r, ev); err == nil {
		l.t.Errorf("%T was accepted: %s", ev, show(n))
	}
}

func (l *life) claimEvent() idem.Event {
	w := l.when()
	return idem.Claim{When: w, Terms: l.s, Token: idem.Token{byte(l.r.Last + 1)}, LeaseEnd: w.At.Add(time.Minute)}
}
func (l *life) claim() *life { l.t.Helper(); return l.do(l.claimEvent()) }
func (l *life) timeout() *life {
	l.t.Helper()
	return l.do(idem.TimedOut{When: l.when(), Terms: l.s, Attempt: l.r.Last})
}
func (l *life) owner() *life {
	l.t.Helper()
	return l.do(idem.OwnerLost{When: l.when(), Terms: l.s, Attempt: l.r.Last})
}
func (l *life) grant() *life { l.t.Helper(); return l.do(idem.Grant{When: l.when()}) }
func (l *life) undo(s idem.State) *life {
	l.t.Helper()
	return l.do(idem.Compensation{When: l.when(), Terms: l.s, State: s})
}

func (l *life) report(n uint32, o idem.Outcome) *life {
	l.t.Helper()
	return l.do(idem.Report{When: l.when(), Terms: l.s, Attempt: n, Outcome: o})
}

func (l *life) ok(n uint32, id string) *life {
	l.t.Helper()
	return l.report(n, idem.Outcome{Class: idem.ClassSuccess, ExternalID: id, Result: []byte{'r', byte('0' + n)}, Kind: idem.ResultValue})
}

// superseded is a success although a later generation began.
func (l *life) superseded(n uint32, id string) *life {
	l.t.Helper()
	return l.do(idem.Report{When: l.when(), Terms: l.s, Attempt: n, Superseded: true,
		Outcome: idem.Outcome{Class: idem.ClassSuccess, ExternalID: id, Result: []byte{'r', byte('0' + n)}, Kind: idem.ResultValue}})
}

func (l *life) fails(n uint32, c idem.Class) *life {
	l.t.Helper()
	return l.report(n, idem.Outcome{Class: c})
}

// ended is an ambiguous end after which the attempt cannot act.
func (l *life) ended(n uint32) *life {
	l.t.Helper()
	return l.report(n, idem.Outcome{Class: idem.ClassAmbiguous, Ended: idem.EndByGroup})
}

func (l *life) query(ids ...string) *life {
	l.t.Helper()
	l.do(idem.QueryStarted{When: l.when(), Token: queryToken, LeaseEnd: l.when().At.Add(time.Minute)})
	w := l.when()
	return l.do(idem.QueryEnded{When: w, Terms: l.s, Token: queryToken, Began: w.At, IDs: ids})
}

func (l *life) decide(verb string) *life {
	l.t.Helper()
	return l.do(idem.Resolve{When: l.when(), Terms: l.s, Decision: idem.Decision{Verb: verb, Reason: "why"}})
}

func TestLateReports(t *testing.T) {
	none := func(l *life) *life { l.s.Query = false; return l }
	tests := []struct {
		name string
		live func(l *life)
		want idem.State
		why  idem.Reason
		dups uint32
		text string // the stored result
		id   string
	}{
		{"success out of UNKNOWN", func(l *life) { l.claim().timeout().ok(1, "A") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"success out of NEEDS_REVIEW", func(l *life) { none(l).claim().owner().ok(1, "A") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"success out of FAILED_RETRYABLE cancels the retry", func(l *life) { l.claim().fails(1, idem.ClassThrottled).ok(1, "A") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"success out of FAILED_FINAL", func(l *life) { l.claim().fails(1, idem.ClassRejected).ok(1, "A") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"success after a proof of absence", func(l *life) { l.claim().ended(1).query().ok(1, "A") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"the same attempt again", func(l *life) { l.claim().ok(1, "A").ok(1, "B") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"the attempt that a query found", func(l *life) { l.claim().ended(1).query("A").ok(1, "B") }, idem.StateCommitted, "", 0, "", "A"},
		{"another attempt, equal id", func(l *life) { l.claim().ended(1).query().claim().ok(2, "A").ok(1, "A") }, idem.StateCommitted, "", 0, "r2", "A"},
		{"another attempt, enforced key", func(l *life) { l.s.Resend = true; l.claim().ended(1).query().claim().ok(2, "A").ok(1, "B") }, idem.StateCommitted, "", 0, "r2", "A"},
		{"another attempt, another id", func(l *life) { l.claim().ended(1).query().claim().ok(2, "A").ok(1, "B") }, idem.StateNeedsReview, idem.ReasonDuplicate, 1, "r2", "A"},
		{"another attempt, no id", func(l *life) { l.claim().ended(1).query().claim().ok(2, "A").ok(1, "") }, idem.StateNeedsReview, idem.ReasonDuplicate, 1, "r2", "A"},
		{"a third effect is counted too", func(l *life) {
			l.claim().ended(1).query().claim().ended(2).query().claim().ok(3, "A").ok(1, "B").ok(2, "C")
		}, idem.StateNeedsReview, idem.ReasonDuplicate, 2, "r3", "A"},
		{"while a later one runs", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A") }, idem.StateStarted, idem.ReasonSuspected, 0, "r1", ""},
		{"then the later one succeeds", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").ok(2, "B") }, idem.StateNeedsReview, idem.ReasonDuplicate, 1, "r1", "A"},
		{"then the later one did the same", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").ok(2, "A") }, idem.StateCommitted, "", 0, "r1", "A"},
		{"then the later one is refused", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").fails(2, idem.ClassRejected) }, idem.StateCommitted, "", 0, "r1", "A"},
		{"then the later one wants input", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").fails(2, idem.ClassInterim) }, idem.StateCommitted, "", 0, "r1", "A"},
		{"then the later one is lost, and a query decides", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").ended(2).query() }, idem.StateCommitted, "", 0, "r1", "A"},
		{"then the later one is lost, and a query finds two", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").ended(2).query("A", "B") }, idem.StateNeedsReview, idem.ReasonSeveralMatches, 1, "r1", ""},
		{"then the later one is lost, and succeeds after all", func(l *life) { l.claim().ended(1).query().claim().ok(1, "A").ended(2).ok(2, "B") }, idem.StateNeedsReview, idem.ReasonDuplicate, 1, "r1", "A"},
		{"success out of COMPENSATED", func(l *life) {
			l.claim().ended(1).query("A").undo(idem.StateCompensating).undo(idem.StateCompensated).ok(1, "A")
		}, idem.StateNeedsReview, idem.ReasonLateSuccess, 0, "", "A"},
		{"success out of COMPENSATING", func(l *life) { l.claim().ended(1).query("A").undo(idem.StateCompensating).ok(1, "A") }, idem.StateNeedsReview, idem.ReasonLateSuccess, 0, "", "A"},
		{"success after a person's not-applied", func(l *life) { l.claim().timeout().decide(idem.VerbNotApplied).ok(1, "A") }, idem.StateNeedsReview, idem.ReasonLateSuccess, 0, "r1", "A"},
		{"success after a person's compensated", func(l *life) { l.claim().timeout().decide(idem.VerbCompensated).ok(1, "A") }, idem.StateNeedsReview, idem.ReasonLateSuccess, 0, "", ""},
		{"success of an attempt that began after the person's word", func(l *life) {
			l.claim().timeout().decide(idem.VerbNotApplied).claim().timeout().ok(2, "A")
		}, idem.StateCommitted, "", 0, "r2", "A"},
		{"success of a superseded generation", func(l *life) { l.claim().ended(1).query().superseded(1, "A") }, idem.StateNeedsReview, idem.ReasonDuplicate, 1, "r1", "A"},
		{"success of a superseded generation that a person waits for", func(l *life) { none(l).claim().timeout().superseded(1, "A") }, idem.StateNeedsReview, idem.ReasonDuplicate, 1, "r1", "A"},
		{"success of a superseded generation that is committed", func(l *life) { l.claim().ended(1).query("A").superseded(1, "A") }, idem.StateCommitted, "", 0, "", "A"},
		{"definite failure of the only attempt", func(l *life) { l.claim().timeout().fails(1, idem.ClassRejected) }, idem.StateFailedFinal, "", 0, "", ""},
		{"definite failure clears its own attempt only", func(l *life) { l.claim().timeout().grant().claim().timeout().fails(1, idem.ClassRejected) }, idem.StateUnknown, idem.ReasonTimeout, 0, "", ""},
		{"definite failure while another may have applied", func(l *life) { l.claim().timeout().grant().claim().fails(2, idem.ClassRejected) }, idem.StateUnknown, "", 0, "", ""},
		{"and then the other one's", func(l *life) {
			l.claim().timeout().grant().claim().fails(2, idem.ClassRejected).fails(1, idem.ClassRejected)
		}, idem.StateFailedFinal, "", 0, "", ""},
		{"exists after one that may have applied", func(l *life) { l.claim().timeout().grant().claim().fails(2, idem.ClassExists) }, idem.StateCommitted, "", 0, "", ""},
		{"exists at first", func(l *life) { l.claim().fails(1, idem.ClassExists) }, idem.StateUnknown, "", 0, "", ""},
		{"a failure after a success", func(l *life) { l.claim().ok(1, "A").fails(1, idem.ClassRejected) }, idem.StateCommitted, "", 0, "r1", "A"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			tt.live(l)
			r := l.r
			if r.State != tt.want || r.Reason != tt.why || r.Duplicates != tt.dups || string(r.Result) != tt.text || r.ExternalID != tt.id {
				t.Errorf("want %s reason %q dup %d result %q id %q, got %s", tt.want, tt.why, tt.dups, tt.text, tt.id, show(r))
			}
			if r.State == idem.StateCommitted {
				l.refused(l.claimEvent())
			}
		})
	}
}

func TestReportAfterExpiry(t *testing.T) {
	l := newLife(t)
	l.s.Retention = time.Minute
	l.claim().ok(1, "A").do(idem.Expire{When: l.when()})
	_, err := idem.Next(l.r, idem.Report{When: l.when(), Terms: l.s, Attempt: 1, Outcome: idem.Outcome{Class: idem.ClassSuccess}})
	if !errors.Is(err, idem.ErrLate) {
		t.Errorf("err %v, want ErrLate", err)
	}
	l.refused(l.claimEvent())
}

func TestUnresolvedAttemptsAreNeverDropped(t *testing.T) {
	l := newLife(t)
	l.s.Query, l.s.Resend, l.s.MaxAttempts = false, true, 100
	for range 40 {
		l.claim().timeout()
	}
	if len(l.r.Attempts) != 40 {
		t.Errorf("%d attempts are left of 40 that may all have applied", len(l.r.Attempts))
	}
	l = newLife(t)
	l.s.MaxAttempts = 100
	l.claim().timeout().grant()
	for range 40 {
		l.claim().fails(l.r.Last, idem.ClassNotSent).grant()
	}
	if n := len(l.r.Attempts); n > 17 || l.r.Attempts[0].N != 1 || !l.r.Attempts[0].MayApplied {
		t.Errorf("%d attempts, the first is %+v", n, l.r.Attempts[0])
	}
	l.claim().ok(l.r.Last, "A").ok(5, "B") // one that was forgotten
	if l.r.State != idem.StateNeedsReview || l.r.Duplicates != 1 {
		t.Errorf("the success of a forgotten attempt: %s", show(l.r))
	}
}
