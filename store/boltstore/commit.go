package boltstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// groupMax bounds one transaction.
const groupMax = 512

// lateWait is how long a caller whose context ended waits for a transaction that
// has its Change already, before it calls the outcome unknown.
const lateWait = time.Second

// queue groups commits. The leader is a caller that found the queue idle, or
// that the leader before it named; no goroutine and no timer belongs to it.
type queue struct {
	mu      sync.Mutex
	busy    bool // there is a leader
	waiting []*request
}

// request is one Change on its way.
type request struct {
	prepared *core.Prepared
	stamp    idem.Stamp
	err      error
	taken    bool          // under queue.mu: a transaction has it
	leads    bool          // under queue.mu: it is to run the next transaction
	wake     chan struct{} // decided, or to lead; nil for a caller that leads at once
}

// Commit implements idem.Store.
func (s *Store) Commit(ctx context.Context, c idem.Change) (idem.Stamp, error) {
	if err := s.ready(ctx); err != nil {
		return idem.Stamp{}, err
	}
	p, err := core.Prepare(&c)
	if err != nil {
		return idem.Stamp{}, err
	}
	if p.Heartbeat() {
		return s.heartbeat(p)
	}
	if err := s.outside(ctx); err != nil {
		return idem.Stamp{}, err
	}
	r := &request{prepared: p}
	q := &s.queue
	q.mu.Lock()
	if q.busy {
		r.wake = make(chan struct{}, 1)
		q.waiting = append(q.waiting, r)
		q.mu.Unlock()
		return s.follow(ctx, r)
	}
	q.busy, r.taken = true, true
	q.mu.Unlock()
	s.lead([]*request{r})
	return r.stamp, r.err
}

// lead runs one transaction and names who runs the next one.
func (s *Store) lead(group []*request) {
	s.run(group)
	q := &s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range group {
		if r.wake != nil && !r.leads {
			r.wake <- struct{}{}
		}
	}
	if q.busy = len(q.waiting) > 0; q.busy {
		q.waiting[0].leads = true
		q.waiting[0].wake <- struct{}{}
	}
}

// follow waits for a leader to decide r, or to name r the next one.
func (s *Store) follow(ctx context.Context, r *request) (idem.Stamp, error) {
	select {
	case <-r.wake:
	case <-ctx.Done():
		if s.queue.leave(r) {
			return idem.Stamp{}, ctx.Err()
		}
		late := time.NewTimer(lateWait)
		defer late.Stop()
		select {
		case <-r.wake:
		case <-late.C:
			return idem.Stamp{}, fmt.Errorf("%w: %w", idem.ErrCommitUnknown, ctx.Err())
		}
	}
	if group := s.queue.take(r); group != nil {
		s.lead(group)
	}
	return r.stamp, r.err
}

// leave takes a request back that no transaction has yet.
func (q *queue) leave(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.taken || r.leads {
		return false
	}
	for i := range q.waiting {
		if q.waiting[i] == r {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	return true
}

// take gives the new leader the group to run, itself first; nil: it was decided.
func (q *queue) take(r *request) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !r.leads || r.taken {
		return nil
	}
	n := min(len(q.waiting), groupMax)
	group := q.waiting[:n:n]
	q.waiting = append([]*request(nil), q.waiting[n:]...)
	for _, g := range group {
		g.taken = true
	}
	return group
}

// run carries a group out in one transaction and decides every request of it.
func (s *Store) run(group []*request) {
	err := s.intact()
	if s.closed.Load() {
		err = idem.ErrClosed
	}
	var plans []*core.Plan
	if err == nil {
		now := s.clock.Now()
		plans, err = s.transact(group, now)
	}
	if err != nil {
		// A conflict with a Change that was then not stored is none.
		for _, r := range group {
			r.stamp, r.err = idem.Stamp{}, err
		}
		return
	}
	for _, p := range plans {
		p.Settle(s.leases, s.watchers)
	}
}

func (s *Store) transact(group []*request, now idem.Instant) (plans []*core.Plan, err error) {
	err = s.update(func(tx *bbolt.Tx) (dirty bool, err error) {
		if s.unfinished.Load() { // since the callers looked
			return false, unfinished(s.path)
		}
		v := view{tx}
		for _, r := range group {
			plan, err := r.prepared.Plan(v, now, s.leases)
			if err != nil {
				r.err = s.refused(err)
				continue
			}
			for i := range plan.Writes {
				if err := v.write(&plan.Writes[i]); err != nil {
					return false, err
				}
				dirty = true
			}
			r.stamp.Time = now
			plans = append(plans, plan)
		}
		if !dirty {
			return false, nil
		}
		return true, putTime(tx, now)
	})
	return plans, err
}

// refused gives the error of one Change its sentinel.
func (s *Store) refused(err error) error {
	if errors.Is(err, codec.ErrMalformed) {
		return damaged(s.path, "%v", err)
	}
	return err
}

// heartbeat extends leases in memory: nothing is stored, nobody waits.
func (s *Store) heartbeat(p *core.Prepared) (idem.Stamp, error) {
	now := s.clock.Now()
	var plan *core.Plan
	err := s.read(func(tx *bbolt.Tx) (err error) {
		plan, err = p.Plan(view{tx}, now, s.leases)
		return err
	})
	if err != nil {
		return idem.Stamp{}, err
	}
	plan.Settle(s.leases, s.watchers)
	// A commit may have ended the claim between the two lines above; then nobody
	// would ever forget the mark.
	for i := range p.Change.Marks {
		m := &p.Change.Marks[i]
		if err := s.read(func(tx *bbolt.Tx) error { return forgetEnded(view{tx}, m, s.leases) }); err != nil {
			return idem.Stamp{}, err
		}
	}
	return idem.Stamp{Time: now}, nil
}

func forgetEnded(v view, m *idem.Mark, leases *core.Leases) error {
	b, err := v.Get(m.Ref)
	if err != nil {
		return err
	}
	if b != nil {
		row, err := codec.Open(m.Ref, b)
		if err != nil || core.Claimed(row.Operation, m.Token) {
			return err
		}
	}
	leases.Forget(m.Ref.ID, m.Token)
	return nil
}
