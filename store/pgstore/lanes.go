package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

const (
	// laneMax is how many groups are on their way at once at most. One lane makes
	// the largest groups, and is all there is as long as it is quick; who finds it
	// under way for longer than laneSlow (a slow disk, a row that somebody has
	// locked) opens another one.
	laneMax  = 3
	laneSlow = 25 * time.Millisecond
	// groupMax and groupBytes bound one group: its statement must neither take long
	// nor come near the gigabyte that the protocol allows.
	groupMax   = 128
	groupBytes = 8 << 20
	// lateWait is how long a caller whose context ended waits for a group that has
	// its Change already, before it calls the outcome unknown.
	lateWait = time.Second
)

// gate says who may leave at once.
type gate struct {
	active int       // lanes
	begun  time.Time // when the latest group left
}

func (g *gate) open(now time.Time) bool {
	return g.active == 0 || (g.active < laneMax && now.Sub(g.begun) > laneSlow)
}

// lanes group commits without a timer: a Change that finds a lane free leaves at
// once, alone, on its caller's goroutine; those that come while it is under way
// share the next group.
type lanes struct {
	mu sync.Mutex
	gate
	waiting []*plan
	closed  bool
	ended   sync.WaitGroup // of lanes that are taken
}

// enter takes a lane, or queues the plan.
func (l *lanes) enter(p *plan) (taken bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, idem.ErrClosed
	}
	if now := time.Now(); l.open(now) {
		l.active, l.begun = l.active+1, now
		l.ended.Add(1)
		return true, nil
	}
	l.waiting = append(l.waiting, p)
	return false, nil
}

// widen takes a lane if something waits and the others are slow.
func (l *lanes) widen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.closed || len(l.waiting) == 0 || !l.open(now) {
		return false
	}
	l.active, l.begun = l.active+1, now
	l.ended.Add(1)
	return true
}

// next gives a lane its next group: those that waited longest, no two of which
// touch the same row. nil: nothing waits, and the lane is free.
func (l *lanes) next() []*plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.active--
		l.ended.Done()
		return nil
	}
	var group, rest []*plan
	rows := map[idem.Ref]struct{}{}
	size := 0
	for _, p := range l.waiting {
		if len(group) == groupMax || (size > 0 && size+p.size > groupBytes) || p.meets(rows) {
			rest = append(rest, p)
			continue
		}
		group, size = append(group, p), size+p.size
		for ref := range p.refs {
			rows[ref] = struct{}{}
		}
	}
	l.waiting, l.begun = rest, time.Now()
	return group
}

// drop takes a plan back that no lane has yet.
func (l *lanes) drop(p *plan) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, p)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return true
}

// close refuses what waits and waits for what is on its way.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	for _, p := range l.waiting {
		p.done <- verdict{err: idem.ErrClosed}
	}
	l.waiting = nil
	l.mu.Unlock()
	l.ended.Wait()
}

func (s *Store) commit(ctx context.Context, p *plan) (idem.Stamp, error) {
	taken, err := s.lanes.enter(p)
	if err != nil {
		return idem.Stamp{}, err
	}
	if taken {
		s.persist(ctx, []*plan{p}, true)
		if group := s.lanes.next(); group != nil {
			go s.drive(group)
		}
		v := <-p.done
		return v.stamp, v.err
	}
	slow := time.AfterFunc(laneSlow, s.widen)
	defer slow.Stop()
	turn := time.NewTimer(time.Until(p.deadline))
	defer turn.Stop()
	select {
	case v := <-p.done:
		return v.stamp, v.err
	case <-turn.C: // who has a lane knows the deadline too
		if s.lanes.drop(p) {
			return idem.Stamp{}, s.explain(fmt.Errorf("%w: others are before this one, and wait for the server", errNoConnection))
		}
	case <-ctx.Done():
		if s.lanes.drop(p) {
			return idem.Stamp{}, ctx.Err()
		}
	}
	return s.late(ctx, p)
}

// late waits for the verdict on a plan that a lane has.
func (s *Store) late(ctx context.Context, p *plan) (idem.Stamp, error) {
	select {
	case v := <-p.done:
		return v.stamp, v.err
	case <-ctx.Done():
	}
	wait := time.NewTimer(lateWait)
	defer wait.Stop()
	select {
	case v := <-p.done:
		return v.stamp, v.err
	case <-wait.C:
		return idem.Stamp{}, s.unsure(ctx.Err())
	}
}

// widen opens another lane for those that wait behind a slow one.
func (s *Store) widen() {
	if s.lanes.widen() {
		if group := s.lanes.next(); group != nil {
			s.drive(group)
		}
	}
}

// drive sends groups until nothing waits.
func (s *Store) drive(group []*plan) {
	for ; group != nil; group = s.lanes.next() {
		s.persist(s.ctx, group, true)
	}
}
