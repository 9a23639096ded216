package core

import (
	"context"
	"sync"

	idem "github.com/mcp-idem/mcp-idem"
)

// Watchers wakes those who wait for an operation to change. Safe for concurrent
// use.
type Watchers struct {
	mu     sync.Mutex
	m      map[idem.ID]map[chan struct{}]struct{}
	closed bool
}

// NewWatchers returns an empty set.
func NewWatchers() *Watchers { return &Watchers{m: map[idem.ID]map[chan struct{}]struct{}{}} }

// Wait returns nil when the operation was changed, or already is past after,
// which version tells. It subscribes before it asks, so no change is missed.
func (w *Watchers) Wait(ctx context.Context, id idem.ID, after idem.Version, version func() (idem.Version, error)) error {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return idem.ErrClosed
	}
	if w.m[id] == nil {
		w.m[id] = map[chan struct{}]struct{}{}
	}
	w.m[id][ch] = struct{}{}
	w.mu.Unlock()
	defer w.remove(id, ch)

	// A row that is gone will not pass any version: the waiter has to look.
	if v, err := version(); err != nil || v > after || (v == 0 && after > 0) {
		return err
	}
	select {
	case _, open := <-ch:
		if !open {
			return idem.ErrClosed
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Watchers) remove(id idem.ID, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.m[id], ch)
	if len(w.m[id]) == 0 {
		delete(w.m, id)
	}
}

// Wake lets every waiter of these operations look again.
func (w *Watchers) Wake(ids []idem.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		wake(w.m[id])
	}
}

// WakeAll lets every waiter look again.
func (w *Watchers) WakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, chs := range w.m {
		wake(chs)
	}
}

func wake(chs map[chan struct{}]struct{}) {
	for ch := range chs {
		select {
		case ch <- struct{}{}:
		default: // it was woken and has not looked yet
		}
	}
}

// Close ends every wait with ErrClosed.
func (w *Watchers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	for _, chs := range w.m {
		for ch := range chs {
			close(ch)
		}
	}
}
