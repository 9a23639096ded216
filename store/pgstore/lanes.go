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
// once, alone; those that come while all lanes are under way share the next one.
type lanes struct {
	mu      sync.Mutex
	work    sync.Cond // something waits, or the lanes are closed
	count   int       // goroutines, one a lane
	idle    int       // of them
	waiting []*request
	closed  bool
	ended   sync.WaitGroup
}

// request is one Change on its way.
type request struct {
	plan  *plan
	taken bool // under lanes.mu
	done  chan verdict
}

func (l *lanes) commit(ctx context.Context, s *Store, p *plan) (idem.Stamp, error) {
	r := &request{plan: p, done: make(chan verdict, 1)}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return idem.Stamp{}, idem.ErrClosed
	}
	l.waiting = append(l.waiting, r)
	if l.idle == 0 && l.count < laneCount {
		l.count++
		l.ended.Add(1)
		go l.drive(s)
	} else {
		l.work.Signal()
	}
	l.mu.Unlock()
	select {
	case v := <-r.done:
		return v.stamp, v.err
	case <-ctx.Done():
	}
	if l.leave(r) {
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

// drive sends groups until the lanes are closed.
func (l *lanes) drive(s *Store) {
	defer l.ended.Done()
	for {
		group := l.take()
		if group == nil {
			return
		}
		plans := make([]*plan, len(group))
		for i, r := range group {
			plans[i] = r.plan
		}
		for i, v := range s.write(plans) {
			v.err = public(v.err)
			if v.err == nil {
				s.announce(plans[i])
			} else {
				v.stamp = idem.Stamp{}
			}
			group[i].done <- v
		}
	}
}

// take waits for a lane's next group: those that waited longest, no two of which
// touch the same row. nil: the lanes are closed.
func (l *lanes) take() []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.idle++
		l.work.Wait()
		l.idle--
	}
	if l.closed {
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

// leave takes a request back that no lane has yet.
func (l *lanes) leave(r *request) bool {
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
		r.done <- verdict{err: idem.ErrClosed}
	}
	l.waiting = nil
	l.work.Broadcast()
	l.mu.Unlock()
	l.ended.Wait()
}
