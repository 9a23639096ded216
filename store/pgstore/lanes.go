package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

const (
	// laneCount is how many groups are on their way at once: while one waits for
	// the disk, the next one keeps the server busy.
	laneCount = 2
	// groupMax bounds one group.
	groupMax = 128
	// lateWait is how long a caller whose context ended waits for a group that has
	// its Change already, before it calls the outcome unknown.
	lateWait = time.Second
)

// lanes group commits without a timer: a Change that finds a lane free leaves at
// once, alone, on its caller's goroutine; those that come while all lanes are
// taken share the next one.
type lanes struct {
	mu      sync.Mutex
	active  int
	waiting []*request
	closed  bool
	ended   sync.WaitGroup // of lanes that are taken
}

// request is one Change that waits for its turn.
type request struct {
	plan  *plan
	taken bool // under lanes.mu
	done  chan verdict
}

// enter takes a lane, or queues the plan.
func (l *lanes) enter(p *plan) (*request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, idem.ErrClosed
	}
	if l.active < laneCount {
		l.active++
		l.ended.Add(1)
		return nil, nil
	}
	r := &request{plan: p, done: make(chan verdict, 1)}
	l.waiting = append(l.waiting, r)
	return r, nil
}

// next gives a lane its next group: those that waited longest, no two of which
// touch the same row. nil: nothing waits, and the lane is free.
func (l *lanes) next() []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.active--
		l.ended.Done()
		return nil
	}
	var group, rest []*request
	rows := map[idem.Ref]struct{}{}
	for _, r := range l.waiting {
		if len(group) == groupMax || r.plan.meets(rows) {
			rest = append(rest, r)
			continue
		}
		r.taken = true
		group = append(group, r)
		for ref := range r.plan.refs {
			rows[ref] = struct{}{}
		}
	}
	l.waiting = rest
	return group
}

// drop takes a request back that no lane has yet.
func (l *lanes) drop(r *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.taken {
		return false
	}
	for i := range l.waiting {
		if l.waiting[i] == r {
			l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
			break
		}
	}
	return true
}

// close refuses what waits and waits for what is on its way.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	for _, r := range l.waiting {
		r.taken = true
		r.done <- verdict{err: idem.ErrClosed}
	}
	l.waiting = nil
	l.mu.Unlock()
	l.ended.Wait()
}

func (s *Store) commit(ctx context.Context, p *plan) (idem.Stamp, error) {
	r, err := s.lanes.enter(p)
	if err != nil {
		return idem.Stamp{}, err
	}
	if r == nil {
		v := s.write(ctx, []*plan{p})[0]
		if group := s.lanes.next(); group != nil {
			go s.drive(group)
		}
		return v.stamp, v.err
	}
	select {
	case v := <-r.done:
		return v.stamp, v.err
	case <-ctx.Done():
	}
	if s.lanes.drop(r) {
		return idem.Stamp{}, ctx.Err()
	}
	late := time.NewTimer(lateWait)
	defer late.Stop()
	select {
	case v := <-r.done:
		return v.stamp, v.err
	case <-late.C:
		return idem.Stamp{}, fmt.Errorf("%w: %w", idem.ErrCommitUnknown, ctx.Err())
	}
}

// drive sends groups until nothing waits.
func (s *Store) drive(group []*request) {
	for ; group != nil; group = s.lanes.next() {
		plans := make([]*plan, len(group))
		for i, r := range group {
			plans[i] = r.plan
		}
		for i, v := range s.write(s.ctx, plans) {
			group[i].done <- v
		}
	}
}
