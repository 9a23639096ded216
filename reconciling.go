package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/crash"
)

// queryLimit bounds one query of the outside system, and the reconciler's
// lease with it.
const queryLimit = 30 * time.Second

// claimLimit is the most time from a baseline to the claim that it is for.
const claimLimit = queryLimit + recordTimeout

// baseline asks before the claim what is there already, and puts the operation
// beside the others that look at the same.
func (g *Guard) baseline(ctx context.Context, op ID, r *Record, q *QueryRules, ev *Claim, c *Change) error {
	at, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	f, err := g.ask(ctx, q, op, r)
	if err != nil {
		return err
	}
	ev.Baseline, ev.HasBase, ev.BaseAt, ev.View = f.IDs, true, at, viewID(r.Scope, f.View)
	slot := Ref{KindSlot, ev.View}
	s, err := g.cfg.Store.Load(ctx, slot)
	if err != nil {
		return err
	}
	have, version := s.Slot(ev.View)
	if n := len(have.Open); n == 0 || n%openLimit != 0 {
		c.Marks = append(c.Marks, Mark{Ref: slot, Twin: op})
		return nil
	}
	if have.Open, err = g.rivalsLeft(ctx, have.Open, at.Add(-claimLimit)); err != nil {
		return err
	}
	if !slices.Contains(have.Open, op) {
		have.Open = append(have.Open, op)
	}
	c.Needs = append(c.Needs, Need{Ref: slot, Version: version})
	c.Puts = append(c.Puts, Row{Ref: slot, Slot: &have})
	return nil
}

// rivalsLeft drops those that were settled before the oldest baseline that is
// still in use was taken: their effects are part of it.
func (g *Guard) rivalsLeft(ctx context.Context, open []ID, oldest Instant) ([]ID, error) {
	refs := make([]Ref, len(open))
	for i, id := range open {
		refs[i] = opRef(id)
	}
	s, err := g.cfg.Store.Load(ctx, refs...)
	if err != nil {
		return nil, err
	}
	for _, id := range open {
		if r := s.Operation(id); r != nil && !r.State.Final() {
			oldest = min(oldest, r.Reconcile.BaseAt)
		}
	}
	var left []ID
	for _, id := range open {
		if r := s.Operation(id); r != nil && (!r.State.Final() || r.SettledAt >= oldest) {
			left = append(left, id)
		}
	}
	return left, nil
}

func lookup(op ID, r *Record) Lookup {
	l := Lookup{Key: op.String(), Record: r}
	if r.Source == SourceBusiness {
		l.BusinessKey = r.Key
	}
	return l
}

// query reconciles an operation in the background, once at a time.
func (g *Guard) query(op ID) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.queries[op]; ch != nil {
		return ch
	}
	ch := make(chan struct{})
	if g.ctx.Err() != nil {
		close(ch)
		return ch
	}
	g.queries[op] = ch
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		if err := g.reconcile(g.ctx, op); err != nil && g.ctx.Err() == nil {
			g.observe(Observation{What: "query_failed", Op: op, Err: err})
		}
		g.mu.Lock()
		delete(g.queries, op)
		g.mu.Unlock()
		close(ch)
		select {
		case g.nudge <- struct{}{}:
		default:
		}
	}()
	return ch
}

// reconcile asks the outside system about an operation and records what it
// says.
func (g *Guard) reconcile(ctx context.Context, op ID) error {
	s, err := g.cfg.Store.Load(ctx, opRef(op))
	if err != nil {
		return err
	}
	r := s.Operation(op)
	if r == nil {
		return nil
	}
	rules, ok := g.cfg.Policy.Rules(r.Scope.Tool)
	if !ok || !r.askable() || r.Reconcile.Next > s.Now {
		return nil
	}
	if r.Reconcile.Lease.End > s.Now && !g.abandoned(r, s.Now) {
		return nil // somebody else asks
	}
	if r, err = g.closeDead(ctx, op, r); err != nil {
		return err
	}
	token := g.token()
	r, err = g.change(ctx, op, r, func(r *Record, now Instant) (Event, []Need) {
		if !r.askable() || r.Reconcile.Next > now || (r.Reconcile.Lease.End > now && !g.abandoned(r, now)) {
			return nil, nil
		}
		return QueryStarted{When: When{now}, Owner: g.cfg.Owner, Token: token, LeaseEnd: now.Add(queryLimit)}, nil
	})
	if err != nil || r.Reconcile.Lease.Token != token {
		return err
	}
	crash.At("query-claimed")
	began, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	f, qerr := g.ask(ctx, rules.Query, op, r)
	crash.At("query-answered")
	if qerr != nil {
		g.observe(Observation{What: "query_failed", Op: op, Record: r, Err: qerr})
	}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	ended := func(r *Record, now Instant) (Event, []Need) {
		ev := QueryEnded{When: When{now}, Terms: g.terms(r, rules, 0), Token: token, Began: began, IDs: f.IDs, Result: f.Result}
		var needs []Need
		if qerr == nil && ev.Baseline {
			ev.Taken, ev.Rivals, needs, qerr = g.rivals(wctx, r, ev.Settle)
		}
		if qerr != nil {
			ev.Failed = qerr.Error()
		}
		return ev, needs
	}
	// What is not recorded keeps everybody from asking until the lease is over.
	for _, err = g.change(wctx, op, r, ended); err != nil; _, err = g.change(wctx, op, nil, ended) {
		if errors.As(err, new(*TransitionError)) || errors.Is(err, ErrNoOperation) { // settled meanwhile
			return nil
		}
		if !sleep(wctx, 100*time.Millisecond) {
			return err
		}
	}
	crash.At("query-recorded")
	return nil
}

// rivals are the other operations whose effects a baseline cannot tell from
// r's: the ids that some are known to have, and how many may have had one since
// the baseline was taken. The needs hold both true until the commit.
func (g *Guard) rivals(ctx context.Context, r *Record, settle time.Duration) (taken []string, n int, needs []Need, err error) {
	s, err := g.cfg.Store.Load(ctx, Ref{KindSlot, r.Reconcile.View})
	if err != nil {
		return nil, 0, nil, err
	}
	view, _ := s.Slot(r.Reconcile.View)
	var refs []Ref
	for _, id := range view.Open {
		if id != r.Op {
			refs = append(refs, opRef(id))
		}
	}
	if s, err = g.cfg.Store.Load(ctx, refs...); err != nil {
		return nil, 0, nil, err
	}
	for _, ref := range refs {
		t := s.Operation(ref.ID)
		if t == nil {
			continue
		}
		needs = append(needs, Need{Ref: ref, Version: t.Version})
		switch {
		case t.ExternalID != "":
			taken = append(taken, t.ExternalID)
		case t.mayActSince(r.Reconcile.BaseAt, settle):
			n++
		}
	}
	return taken, n, needs, nil
}

// mayActSince reports whether an effect of the operation may have come after a
// moment: a confirmed one came before its answer, one that is not known until
// settle after its end.
func (r *Record) mayActSince(at Instant, settle time.Duration) bool {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		switch {
		case a.Class == ClassSuccess && a.End != 0:
			if a.End > at {
				return true
			}
		case a.MayApplied || r.State == StateCommitted:
			if a.End == 0 || a.End.Add(settle) > at {
				return true
			}
		}
	}
	return false
}

// abandoned reports whether the reconciler that holds the lease has died.
func (g *Guard) abandoned(r *Record, now Instant) bool {
	return r.Reconcile.Lease.End > now && g.cfg.Processes.Dead(r.Reconcile.Lease.Owner)
}

// ask makes the query. A missing reconciler, as after a change of the
// configuration, is a failed query.
func (g *Guard) ask(ctx context.Context, q *QueryRules, op ID, r *Record) (f Finding, err error) {
	if q == nil {
		return f, errors.New("no reconciler is configured any more")
	}
	ctx, cancel := context.WithTimeout(ctx, queryLimit-queryLimit/10)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the reconciler panicked: %v", p)
		}
	}()
	f, err = q.Reconciler.Query(ctx, lookup(op, r))
	f.IDs = slices.Clone(f.IDs)
	slices.Sort(f.IDs)
	f.IDs = slices.Compact(f.IDs)
	return f, err
}

// endLimit bounds how long the end of a process group is waited for; one that
// cannot be ended is looked at again with the next query.
const endLimit = 10 * time.Second

// ended finds out whether an attempt of a dead owner can no longer act. An atomic
// one ends by what the record becomes.
func (g *Guard) ended(ctx context.Context, a *Attempt) EndBy {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	switch {
	case a.End != 0 || a.Atomic || !g.cfg.Processes.Dead(a.Owner):
		return ""
	case a.Group == Group{}:
		return EndByBytes
	case g.cfg.Processes.EndGroup(ctx, a.Owner, a.Group):
		return EndByGroup
	}
	return ""
}

// closeDead notes the end of attempts whose owner is dead.
func (g *Guard) closeDead(ctx context.Context, op ID, r *Record) (*Record, error) {
	for i := range r.Attempts {
		a := r.Attempts[i]
		by := g.ended(ctx, &a)
		if by == "" {
			continue
		}
		var err error
		r, err = g.change(ctx, op, r, func(r *Record, now Instant) (Event, []Need) {
			return AttemptEnded{When: When{now}, Attempt: a.N, By: by}, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// lost moves a started operation on whose owner died or let its lease run out.
func (g *Guard) lost(ctx context.Context, op ID, r *Record) (*Record, error) {
	rules, ok := g.cfg.Policy.Rules(r.Scope.Tool)
	a := r.attempt(r.Last)
	if !ok || a == nil {
		return r, nil
	}
	dead := g.cfg.Processes.Dead(a.Owner)
	by := g.ended(ctx, a)
	rec, err := g.change(ctx, op, r, func(r *Record, now Instant) (Event, []Need) {
		if r.State != StateStarted || r.Last != a.N {
			return nil, nil
		}
		var needs []Need
		if !dead {
			needs = []Need{{Ref: opRef(op), Version: r.Version, Lease: LeaseOver}}
		}
		return OwnerLost{When: When{now}, Terms: g.terms(r, rules, 0), Attempt: a.N, Ended: by}, needs
	})
	if errors.As(err, new(*Conflict)) { // it was renewed
		return rec, nil
	}
	return rec, err
}

// LostProcess ends every unsettled operation of an upstream's process that kept
// its state to itself (Rules.Process). Call it when the process has ended.
func (g *Guard) LostProcess(ctx context.Context, tenant, server, incarnation string) error {
	for _, s := range []State{StatePlanned, StateUnknown, StateNeedsReview, StateFailedRetryable} {
		err := g.each(ctx, Query{Order: ByState, State: s, Tenant: tenant}, func(op ID, r *Record) error {
			if r.Server() != server || r.Incarnation != incarnation {
				return nil
			}
			_, err := g.lose(ctx, op, r)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lose ends an unsettled operation with the process that held its effect.
func (g *Guard) lose(ctx context.Context, op ID, r *Record) (*Record, error) {
	rules, _ := g.cfg.Policy.Rules(r.Scope.Tool)
	return g.change(ctx, op, r, func(r *Record, now Instant) (Event, []Need) {
		if r.State.Final() {
			return nil, nil
		}
		return ProcessLost{When: When{now}, Terms: g.terms(r, rules, 0)}, nil
	})
}
