package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// loadMax bounds the rows of one statement.
const loadMax = 512

// loads share round trips as commits do: see lanes.
type loads struct {
	mu sync.Mutex
	gate
	waiting []*loading
}

// loading is one call of Load that waits for its turn.
type loading struct {
	refs []idem.Ref
	done chan loaded
}

type loaded struct {
	snap idem.Snapshot
	err  error
}

// enter takes a lane, or queues the call.
func (l *loads) enter(refs []idem.Ref) *loading {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.open(now) {
		l.active, l.begun = l.active+1, now
		return nil
	}
	w := &loading{refs: refs, done: make(chan loaded, 1)}
	l.waiting = append(l.waiting, w)
	return w
}

// leave gives the lane to those that wait, or back.
func (l *loads) leave() (next []*loading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := 0
	for rows <= loadMax && len(l.waiting) > 0 {
		next = append(next, l.waiting[0])
		rows += len(l.waiting[0].refs)
		l.waiting = l.waiting[1:]
	}
	if l.begun = time.Now(); next == nil {
		l.active--
	}
	return next
}

// drop takes back a call whose caller has left.
func (l *loads) drop(w *loading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// Load implements idem.Store.
func (s *Store) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return idem.Snapshot{}, err
	}
	w := s.loads.enter(refs)
	if w == nil {
		snap, err := s.load(ctx, refs)
		if err == nil {
			err = s.certain(ctx)
		}
		if next := s.loads.leave(); next != nil {
			go s.loadGroups(next)
		}
		return snap, err
	}
	turn := time.NewTimer(s.patience + s.timeout)
	defer turn.Stop()
	select {
	case r := <-w.done:
		return r.snap, r.err
	case <-turn.C:
		s.loads.drop(w)
		return idem.Snapshot{}, s.explain(fmt.Errorf("%w: others are before this one, and wait for the server", errNoConnection))
	case <-ctx.Done():
		s.loads.drop(w)
		return idem.Snapshot{}, ctx.Err()
	}
}

// loadGroups loads for those that wait until nobody does.
func (s *Store) loadGroups(group []*loading) {
	for ; group != nil; group = s.loads.leave() {
		var refs []idem.Ref
		for _, w := range group {
			refs = append(refs, w.refs...)
		}
		raw, err := s.loadRaw(s.ctx, refs)
		if err == nil {
			err = s.certain(s.ctx)
		}
		if s.closed.Load() && err != nil {
			err = idem.ErrClosed
		}
		for _, w := range group {
			if err != nil {
				w.done <- loaded{err: err}
				continue
			}
			snap, err := raw.snapshot(w.refs) // each caller's rows are its own
			w.done <- loaded{snap, s.explain(err)}
		}
	}
}
