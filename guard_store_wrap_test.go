package idem_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	idem "github.com/mcp-idem/mcp-idem"
)

var errDisk = errors.New("no space left on device")

// process is a guard's own way to the ledger, with faults of its own. It is cut
// when the process crashes.
type process struct {
	idem.Store
	dead    chan struct{}
	commits atomic.Int64

	mu      sync.Mutex
	broken  error                                                                            // of every commit
	judge   func(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) // true: it decided
	loading error
	stale   func(idem.Snapshot) // makes a look older than it is; set before use
}

var errCrashed = errors.New("the process has crashed")

func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = err
}

// lose makes looks and commits fail; nil: none.
func (p *process) lose(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.loading = err, err
}

func (p *process) Commit(ctx context.Context, c idem.Change) (idem.Stamp, error) {
	p.commits.Add(1)
	p.mu.Lock()
	broken, judge := p.broken, p.judge
	p.mu.Unlock()
	select {
	case <-p.dead:
		return idem.Stamp{}, errCrashed
	default:
	}
	if broken != nil {
		return idem.Stamp{}, broken
	}
	if judge != nil {
		if s, err, done := judge(c, func() (idem.Stamp, error) { return p.Store.Commit(context.WithoutCancel(ctx), c) }); done {
			return s, err
		}
	}
	return p.Store.Commit(ctx, c)
}

func (p *process) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	p.mu.Lock()
	err := p.loading
	p.mu.Unlock()
	if err != nil {
		return idem.Snapshot{}, err
	}
	s, err := p.Store.Load(ctx, refs...)
	if p.stale != nil {
		p.stale(s)
	}
	return s, err
}

// puts finds the operation that a change puts; nil: none.
func puts(c idem.Change) *idem.Record {
	for _, r := range c.Puts {
		if r.Operation != nil {
			return r.Operation
		}
	}
	return nil
}
