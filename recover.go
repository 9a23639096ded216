package idem

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// How often the recoverer looks: when nothing calls it, after it had something
// to do, and at most.
const (
	recoverIdle  = time.Second
	recoverBusy  = 100 * time.Millisecond
	recoverPause = 20 * time.Millisecond
)

// Recover runs until ctx ends: it finds claims whose owner died or whose lease
// is over, reconciles what is due, and lets what has expired shrink. It touches
// operations of the tenant and of these servers only. Several may run on one
// ledger; they share the work without a leader.
func (g *Guard) Recover(ctx context.Context, tenant string, servers []string) error {
	swept := false
	for {
		pause := recoverIdle
		if !swept {
			swept = g.sweep(ctx, tenant, servers) == nil
		}
		for _, s := range servers {
			next, err := g.due(ctx, tenant, s)
			if err != nil && ctx.Err() == nil {
				g.observe(Observation{What: "recover_failed", Err: err})
			} else if err == nil {
				pause = min(pause, next)
			}
		}
		if !sleep(ctx, max(pause, recoverPause)) {
			return ctx.Err()
		}
	}
}

// sweep finds at start what dead owners left: their leases are over at once,
// and what is left of their process groups is ended. A living owner's lease
// begins anew, since the ledger may have changed hands.
func (g *Guard) sweep(ctx context.Context, tenant string, servers []string) error {
	for _, s := range []State{StateStarted, StateUnknown, StateNeedsReview} {
		err := g.each(ctx, Query{Order: ByState, State: s, Tenant: tenant}, func(op ID, r *Record) error {
			rules, ok := g.cfg.Policy.Rules(r.Scope.Tool)
			if !ok || !slices.Contains(servers, r.Server()) || g.flight(op, r.Last) != nil {
				return nil
			}
			return g.inherit(ctx, op, r, rules)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inherit takes over what another process left unsettled.
func (g *Guard) inherit(ctx context.Context, op ID, r *Record, rules Rules) error {
	if r.State != StateStarted {
		r, err := g.closeDead(ctx, op, r)
		if err == nil && g.abandoned(r, r.UpdatedAt) {
			g.query(op)
		}
		return err
	}
	if g.cfg.Processes.Dead(r.Lease.Owner) {
		_, err := g.lost(ctx, op, r)
		return err
	}
	now, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	_, err = g.commit(ctx, Change{Marks: []Mark{{Ref: opRef(op), LeaseEnd: now.Add(rules.Lease), Token: r.Lease.Token}}})
	return err
}

// due does what is due on one server and returns how long until the next.
func (g *Guard) due(ctx context.Context, tenant, server string) (time.Duration, error) {
	q := Query{Order: ByDue, Tenant: tenant, Server: server, Until: 1<<63 - 1, Limit: 64}
	page, err := g.cfg.Store.List(ctx, q)
	if err != nil {
		return 0, err
	}
	pause := recoverIdle
	var wg sync.WaitGroup
	if len(page.Records) > 0 && page.Records[0].Due() <= page.Now {
		pause = recoverBusy // what is done now may be due again soon
	}
	slots := make(chan struct{}, 8)
	for _, r := range page.Records {
		if d := r.Due(); d > page.Now {
			pause = min(pause, d.Sub(page.Now))
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := g.handle(ctx, r); err != nil && ctx.Err() == nil {
				g.observe(Observation{What: "recover_failed", Record: r, Err: err})
			}
		})
	}
	wg.Wait()
	return pause, nil
}

// handle does what is due for one operation.
func (g *Guard) handle(ctx context.Context, r *Record) error {
	op := r.Op
	switch {
	case r.State == StateStarted:
		if g.flight(op, r.Last) != nil {
			return nil
		}
		_, err := g.lost(ctx, op, r)
		return err
	case r.Reconcile.Next != 0:
		if _, ok := g.cfg.Policy.Rules(r.Scope.Tool); !ok {
			return nil
		}
		select {
		case <-g.query(op):
		case <-ctx.Done():
		}
		return nil
	}
	return g.retire(ctx, op, r)
}

// retire shrinks an expired record to a tombstone, or deletes an occurrence
// that was delivered: its number lives on in the slot.
func (g *Guard) retire(ctx context.Context, op ID, r *Record) error {
	rules, ok := g.cfg.Policy.Rules(r.Scope.Tool)
	if !ok {
		return nil
	}
	drops := make([]Ref, 0, len(r.Aliases)+1)
	for _, a := range r.Aliases {
		drops = append(drops, Ref{KindAlias, a})
	}
	c := Change{Needs: []Need{{Ref: opRef(op), Version: r.Version}}, Drops: drops}
	if r.Occurrence > 0 && (rules.Repeat == RepeatOccurrence || rules.Repeat == RepeatEachCall) {
		row := deliveryID(r.Slot, r.Run)
		known := g.marks.known(row)
		s, err := g.cfg.Store.Load(ctx, Ref{KindDelivery, row}, Ref{KindSlot, r.Slot})
		if err != nil {
			return err
		}
		if s.Rows[Ref{KindDelivery, row}].Delivered.Has(r.Occurrence) || known.Has(r.Occurrence) {
			slot, version := s.Slot(r.Slot)
			if r.Occurrence == slot.Floor+1 {
				slot.Floor++
			}
			slot.Open = slices.DeleteFunc(slices.Clone(slot.Open), func(id ID) bool { return id == op })
			c.Drops = append(c.Drops, opRef(op))
			c.Needs = append(c.Needs, Need{Ref: Ref{KindSlot, r.Slot}, Version: version})
			c.Puts = []Row{{Ref: Ref{KindSlot, r.Slot}, Slot: &slot}}
			return ignoreConflict(g.commit(ctx, c))
		}
	}
	now, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	var ev Event = Expire{When{now}}
	if whole := r.SettledAt.Add(rules.Retention); now < whole { // an occurrence that nobody has in hand
		ev, c.Drops = Prolong{When{now}, whole}, nil
	}
	tomb, err := Next(r, ev)
	if err != nil {
		return err
	}
	c.Puts = []Row{{Ref: opRef(op), Operation: tomb}}
	return ignoreConflict(g.commit(ctx, c))
}

func ignoreConflict(_ Stamp, err error) error {
	if errors.As(err, new(*Conflict)) {
		return nil // looked at again when it is due
	}
	return err
}

// each pages through a listing.
func (g *Guard) each(ctx context.Context, q Query, f func(op ID, r *Record) error) error {
	for {
		page, err := g.cfg.Store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			if err := f(r.Op, r); err != nil {
				return err
			}
		}
		if page.Next == nil {
			return nil
		}
		q.After = page.Next
	}
}
