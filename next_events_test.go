package idem_test

import (
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// setting is what a policy may offer, as far as the machine depends on it.
type setting struct {
	name     string
	terms    idem.Terms
	process  bool // the effect lives in the upstream's process
	atomic   bool // attempts commit with their outcome
	mixed    bool // some of them
	attempts uint32
	closes   bool // small enough to be explored whole
	classes  []idem.Class
}

func settings() []setting {
	base := idem.Terms{Settle: time.Second, Every: time.Second, GiveUp: 1000 * time.Hour, MaxAttempts: 2, MaxElapsed: 5000 * time.Hour,
		Backoff: time.Second, FailureTTL: time.Minute, Retention: time.Minute}
	query, base2, resend, both := base, base, base, base
	query.Query = true
	base2.Query, base2.Baseline = true, true
	resend.Resend = true
	both.Query, both.Resend = true, true
	all := append(idem.Classes(), idem.ClassInterim)
	some := []idem.Class{idem.ClassSuccess, idem.ClassNotSent, idem.ClassAmbiguous, idem.ClassReported}
	few := []idem.Class{idem.ClassSuccess, idem.ClassNotSent, idem.ClassAmbiguous}
	return []setting{
		{name: "one attempt, nothing to ask", terms: base, attempts: 1, classes: some, closes: true},
		{name: "one attempt, query", terms: query, attempts: 1, classes: some, closes: true},
		{name: "nothing to ask", terms: base, attempts: 2, classes: all},
		{name: "query", terms: query, attempts: 2, classes: all},
		{name: "baseline", terms: base2, attempts: 2, classes: few},
		{name: "resend", terms: resend, attempts: 3, classes: all},
		{name: "query and resend", terms: both, attempts: 2, classes: few},
		{name: "process", terms: query, process: true, attempts: 2, classes: few},
		{name: "three attempts, query", terms: query, attempts: 3, classes: all},
		{name: "three attempts, nothing to ask", terms: base, attempts: 3, classes: few},
		{name: "one atomic attempt", terms: base, attempts: 1, classes: all, atomic: true, closes: true},
		{name: "atomic", terms: base, attempts: 3, classes: all, atomic: true},
		{name: "atomic, with a query", terms: base2, attempts: 2, classes: all, atomic: true},
		{name: "atomic, in a process", terms: resend, process: true, attempts: 2, classes: few, atomic: true},
		{name: "some atomic", terms: query, attempts: 3, classes: all, mixed: true},
		{name: "some atomic, resend", terms: resend, attempts: 3, classes: few, mixed: true},
	}
}

var (
	queryToken = idem.Token{0xff}
	theirToken = idem.Token{0xee}
)

// events lists everything that may happen to a record, sensible or not.
func (s setting) events(r *idem.Record) []idem.Event {
	now := r.UpdatedAt.Add(time.Hour)
	w, t := idem.When{At: now}, s.terms
	claim := idem.Claim{When: w, Terms: t, Token: idem.Token{byte(r.Last + 1)}, LeaseEnd: now.Add(time.Minute), Atomic: s.atomic}
	if t.Baseline {
		claim.Baseline, claim.HasBase = []string{"Z"}, true
	}
	var all []idem.Event
	if r.Last < s.attempts {
		early := claim
		early.At = r.UpdatedAt
		all = append(all, claim, early)
		if s.mixed {
			claim.Atomic = true
			all = append(all, claim)
		}
	}
	for n := uint32(1); n <= r.Last; n++ {
		all = append(all, idem.TimedOut{When: w, Terms: t, Attempt: n},
			idem.OwnerLost{When: w, Terms: t, Attempt: n},
			idem.OwnerLost{When: w, Terms: t, Attempt: n, Ended: idem.EndByGroup},
			idem.AttemptEnded{When: w, Attempt: n, By: idem.EndByBytes})
		for _, o := range s.outcomes(n) {
			all = append(all, idem.Report{When: w, Terms: t, Attempt: n, Outcome: o})
			if o.Class == idem.ClassSuccess {
				all = append(all, idem.Report{When: w, Terms: t, Attempt: n, Outcome: o, Superseded: true})
			}
		}
	}
	decision := func(verb string) idem.Decision { return idem.Decision{Command: "c", Verb: verb, Reason: "why"} }
	all = append(all,
		idem.Grant{When: w, Decision: decision("")},
		idem.Resolve{When: w, Terms: t, Decision: decision(idem.VerbCommitted)},
		idem.Resolve{When: w, Terms: t, Decision: decision(idem.VerbCommitted), ExternalID: "A", Result: []byte("person")},
		idem.Resolve{When: w, Terms: t, Decision: decision(idem.VerbNotApplied)},
		idem.Resolve{When: w, Terms: t, Decision: decision(idem.VerbCompensated)},
		idem.Resolve{When: w, Terms: t, Decision: decision("forget")},
		idem.Compensation{When: w, Terms: t, State: idem.StateCompensating},
		idem.Compensation{When: w, Terms: t, State: idem.StateCompensated},
		idem.Compensation{When: w, Terms: t, State: idem.StateNeedsReview},
		idem.Expire{When: w}, idem.Prolong{When: w, Until: now.Add(time.Hour)}, idem.Hurry{When: w, Terms: t},
		idem.Reassess{When: w, Terms: t})
	if s.process {
		all = append(all, idem.ProcessLost{When: w, Terms: t})
	}
	if t.Query {
		all = append(all, idem.QueryStarted{When: w, Token: queryToken, LeaseEnd: now.Add(time.Minute)})
		all = append(all, s.answers(now)...)
	}
	return all
}

// outcomes lists what may come of an attempt.
func (s setting) outcomes(n uint32) []idem.Outcome {
	var all []idem.Outcome
	for _, c := range s.classes {
		switch c {
		case idem.ClassSuccess:
			for _, id := range []string{"", "A", "B"} {
				all = append(all, idem.Outcome{Class: c, ExternalID: id, Result: []byte{'r', byte('0' + n)}, Kind: idem.ResultValue})
			}
		case idem.ClassReported:
			all = append(all, idem.Outcome{Class: c, Result: []byte("isError"), Kind: idem.ResultValue})
		case idem.ClassAmbiguous:
			all = append(all, idem.Outcome{Class: c}, idem.Outcome{Class: c, Ended: idem.EndByGroup})
			if s.process {
				all = append(all, idem.Outcome{Class: c, Ended: idem.EndByGroup, Lost: true}, idem.Outcome{Class: idem.ClassNotSent, Lost: true})
			}
		default:
			all = append(all, idem.Outcome{Class: c})
		}
	}
	return all
}

// answers lists what a query may bring.
func (s setting) answers(now idem.Instant) []idem.Event {
	e := idem.QueryEnded{When: idem.When{At: now}, Terms: s.terms, Token: queryToken, Began: now}
	early, failed, last, other := e, e, e, e
	early.Began = 1
	failed.Failed = "down"
	last.Failed, last.GiveUp = "down", 0
	other.Token, other.IDs = theirToken, []string{"A"}
	all := []idem.Event{e, early, failed, last, other}
	for _, ids := range [][]string{{"A"}, {"B"}, {"A", "B"}, {"Z"}, {"A", "Z"}} {
		if !s.terms.Baseline && ids[len(ids)-1] == "Z" {
			continue
		}
		f := e
		f.IDs, f.Result = ids, []byte("found")
		all = append(all, f)
		if s.terms.Baseline { // some of it may be another operation's
			taken, rival := f, f
			taken.Taken, rival.Rivals = []string{"A"}, 1
			all = append(all, taken, rival)
		}
	}
	return all
}
