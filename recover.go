package idem

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// How often the recoverer looks when nothing calls it, and at most; and how many
// queries it keeps under way.
const (
	recoverIdle    = time.Second
	recoverPause   = 20 * time.Millisecond
	recoverQueries = 8
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
		if !sleep(ctx, recoverPause) {
			return ctx.Err()
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-g.nudge:
		case <-ctx.Done():
		}
		next.Stop()
	}
}

// sweep finds at start what dead owners left: their leases are over at once,
// and what is left of their process groups is ended. The lease of a living owner
// on this machine begins anew, since the ledger may have changed hands. What
// nothing is planned for is judged by the policy of today.
func (g *Guard) sweep(ctx context.Context, tenant string, servers []string) error {
	for _, s := range States() {
		if s.Final() {
			continue
		}
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
	if r.State == StateStarted {
		return g.inheritClaim(ctx, op, r, rules)
	}
	r, err := g.closeDead(ctx, op, r)
	if err != nil {
		return err
	}
	if a := r.attempt(r.Last); r.Incarnation != "" && a != nil && g.cfg.Processes.Dead(a.Owner) && a.End != 0 {
		_, err := g.lose(ctx, op, r)
		return err
	}
	if g.abandoned(r, r.UpdatedAt) {
		g.query(op)
		return nil
	}
	_, err = g.change(ctx, op, r, func(r *Record, now Instant) (Event, []Need) {
		return Reassess{When: When{now}, Terms: g.terms(r, rules, 0)}, nil
	})
	return ignoreUnfit(err)
}

func (g *Guard) inheritClaim(ctx context.Context, op ID, r *Record, rules Rules) error {
	if g.cfg.Processes.Dead(r.Lease.Owner) {
		_, err := g.lost(ctx, op, r)
		return err
	}
	if r.Lease.Owner.Machine != g.cfg.Owner.Machine {
		return nil // what hosts share keeps their renewals, and a dead one needs no more time
	}
	now, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	_, err = g.commit(ctx, Change{Marks: []Mark{{Ref: opRef(op), LeaseEnd: now.Add(rules.Lease), Token: r.Lease.Token}}})
	return err
}

func ignoreUnfit(err error) error {
	if errors.As(err, new(*TransitionError)) {
		return nil
	}
	return err
}

// due does what is due on one server and returns how long until the next.
func (g *Guard) due(ctx context.Context, tenant, server string) (time.Duration, error) {
	now, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return 0, err
	}
	// What is due later than the next look is read then: records are large.
	q := Query{Order: ByDue, Tenant: tenant, Server: server, Until: now.Add(recoverIdle), Limit: 64}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, 8)
	for {
		page, err := g.cfg.Store.List(ctx, q)
		if err != nil {
			return 0, err
		}
		due := slices.IndexFunc(page.Records, func(r *Record) bool { return r.Due() > page.Now })
		if due < 0 {
			due = len(page.Records)
		}
		for _, i := range g.order(due) {
			r := page.Records[i]
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			wg.Go(func() {
				defer func() { <-slots }()
				if err := g.handle(ctx, r); err != nil && ctx.Err() == nil {
					g.observe(Observation{What: "recover_failed", Record: r, Err: err})
				}
			})
		}
		if due < len(page.Records) {
			return min(recoverIdle, page.Records[due].Due().Sub(page.Now)), nil
		}
		if page.Next == nil {
			return recoverIdle, nil
		}
		q.After = page.Next // what cannot be moved on must not hide the rest
	}
}

// order is an order of n things by chance: recoverers that see the same do not
// all begin with the same.
func (g *Guard) order(n int) []int {
	t := g.token()
	seed := binary.LittleEndian.Uint64(t[:])
	return rand.New(rand.NewPCG(seed, 0)).Perm(n)
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
		g.mu.Lock()
		busy := len(g.queries) >= recoverQueries
		g.mu.Unlock()
		if _, ok := g.cfg.Policy.Rules(r.Scope.Tool); ok && !busy {
			g.query(op) // its end is a nudge
		}
		return nil
	}
	return g.retireDue(ctx, op, r)
}

// retireDue retires a record; those of one slot collide, and try again.
func (g *Guard) retireDue(ctx context.Context, op ID, r *Record) error {
	for {
		err := g.retire(ctx, op, r)
		if !errors.As(err, new(*Conflict)) {
			return err
		}
		s, err := g.cfg.Store.Load(ctx, opRef(op))
		if err != nil {
			return err
		}
		if r = s.Operation(op); r == nil || !r.State.Final() || r.Due() == 0 || r.Due() > s.Now {
			return nil
		}
	}
}

// retire shrinks an expired record to a tombstone. An occurrence that was
// delivered is deleted, since its number lives on in the slot, and so is an
// operation that no ask can mean again.
func (g *Guard) retire(ctx context.Context, op ID, r *Record) error {
	rules, ok := g.cfg.Policy.Rules(r.Scope.Tool)
	if !ok {
		return nil
	}
	refs := []Ref{{KindDelivery, deliveryID(r.Slot, r.Run)}, {KindSlot, r.Slot}}
	for _, a := range r.Aliases {
		refs = append(refs, Ref{KindAlias, a})
	}
	known := g.marks.known(refs[0].ID)
	s, err := g.cfg.Store.Load(ctx, refs...)
	if err != nil {
		return err
	}
	c := Change{Needs: []Need{{Ref: opRef(op), Version: r.Version}}}
	for _, ref := range refs[2:] {
		if row := s.Row(ref); row.Alias != nil && row.Alias.Operation == op { // a later call may have taken it over
			c.Drops = append(c.Drops, ref)
		}
	}
	counted := r.Occurrence > 0 && (rules.Repeat == RepeatOccurrence || rules.Repeat == RepeatEachCall)
	switch {
	case r.Source == SourceNone:
		c.Drops = append(c.Drops, opRef(op))
		_, err := g.commit(ctx, c)
		return err
	case counted && (s.Row(refs[0]).Delivered.Has(r.Occurrence) || known.Has(r.Occurrence)):
		slot, version := s.Slot(r.Slot)
		if slot.Floor, err = g.floor(ctx, r, slot); err != nil {
			return err
		}
		slot.Open = slices.DeleteFunc(slices.Clone(slot.Open), func(id ID) bool { return id == op })
		c.Drops = append(c.Drops, opRef(op))
		c.Needs = append(c.Needs, Need{Ref: Ref{KindSlot, r.Slot}, Version: version})
		c.Puts = []Row{{Ref: Ref{KindSlot, r.Slot}, Slot: &slot}}
		_, err := g.commit(ctx, c)
		return err
	}
	var ev Event = Expire{When{s.Now}}
	if whole := r.SettledAt.Add(rules.Retention); s.Now < whole { // an occurrence that nobody has in hand
		ev, c.Drops = Prolong{When{s.Now}, whole}, nil
	}
	tomb, err := Next(r, ev)
	if err != nil {
		return err
	}
	c.Puts = []Row{{Ref: opRef(op), Operation: tomb}}
	_, err = g.commit(ctx, c)
	return err
}

// floor is the slot's floor once r is deleted: it rises over all that is gone.
func (g *Guard) floor(ctx context.Context, r *Record, slot Slot) (uint64, error) {
	for n := slot.Floor + 1; n <= slot.N; n++ {
		op := r.twin(n)
		if n == r.Occurrence {
			continue
		}
		s, err := g.cfg.Store.Load(ctx, opRef(op))
		if err != nil || s.Operation(op) != nil {
			return n - 1, err
		}
	}
	return slot.N, nil
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
