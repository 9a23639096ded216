// Package memstore is a ledger in memory, for tests and examples.
//
// It keeps every promise of idem.Store but one: nothing survives the process.
// An effect that is recorded here and nowhere else happens again after a
// restart, so never put it in front of a tool that matters.
//
// Rows are kept encoded, so that callers share nothing with the store nor with
// each other. One mutex serialises everything; a listing sorts all operations
// anew and is meant for small ledgers.
package memstore

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Config configures a Store. The zero value is ready to use.
type Config struct {
	// Now reads the wall clock; nil: the machine's.
	Now func() time.Time
}

// Store is an idem.Store in memory. Safe for concurrent use.
type Store struct {
	clock    *core.Clock
	leases   *core.Leases
	watchers *core.Watchers

	mu     sync.Mutex
	rows   map[idem.Ref][]byte
	closed bool
}

var _ idem.Store = (*Store)(nil)

// New returns an empty ledger.
func New(cfg Config) *Store {
	return &Store{
		clock: core.NewClock(cfg.Now, 0), leases: core.NewLeases(), watchers: core.NewWatchers(),
		rows: map[idem.Ref][]byte{},
	}
}

// enter takes the lock; the caller releases it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return idem.ErrClosed
	}
	return nil
}

// Load implements idem.Store.
func (s *Store) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	if err := s.enter(ctx); err != nil {
		return idem.Snapshot{}, err
	}
	defer s.mu.Unlock()
	snap := idem.Snapshot{Now: s.clock.Now(), Rows: make([]idem.Row, 0, len(refs))}
	for _, ref := range refs {
		b := s.rows[ref]
		if b == nil {
			continue
		}
		row, err := codec.Open(ref, b)
		if err != nil {
			return idem.Snapshot{}, err
		}
		if row.Operation != nil {
			s.leases.Overlay(ref.ID, row.Operation)
		}
		snap.Rows = append(snap.Rows, row)
	}
	return snap, nil
}

// Commit implements idem.Store. It never returns ErrCommitUnknown.
func (s *Store) Commit(ctx context.Context, c idem.Change) (idem.Stamp, error) {
	p, err := core.Prepare(&c)
	if err != nil {
		return idem.Stamp{}, err
	}
	if err := s.enter(ctx); err != nil {
		return idem.Stamp{}, err
	}
	defer s.mu.Unlock()
	now := s.clock.Now()
	plan, err := p.Plan(view{s}, now, s.leases)
	if err != nil {
		return idem.Stamp{}, err
	}
	for i := range plan.Writes {
		if w := &plan.Writes[i]; w.Sealed == nil {
			delete(s.rows, w.Ref)
		} else {
			s.rows[w.Ref] = w.Sealed
		}
	}
	plan.Settle(s.leases, s.watchers)
	return idem.Stamp{Time: now}, nil
}

// List implements idem.Store.
func (s *Store) List(ctx context.Context, q idem.Query) (idem.Page, error) {
	if err := s.enter(ctx); err != nil {
		return idem.Page{}, err
	}
	defer s.mu.Unlock()
	page, err := core.List(ctx, view{s}, &q, s.leases)
	page.Now = s.clock.Now()
	return page, err
}

// Watch implements idem.Store.
func (s *Store) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	return s.watchers.Wait(ctx, id, after, func() (idem.Version, error) {
		if err := s.enter(ctx); err != nil {
			return 0, err
		}
		defer s.mu.Unlock()
		if b := s.rows[idem.Ref{Kind: idem.KindOperation, ID: id}]; b != nil {
			return codec.Version(b)
		}
		return 0, nil
	})
}

// Clock implements idem.Store.
func (s *Store) Clock(ctx context.Context) (idem.Instant, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.clock.Now(), nil
}

// Close implements idem.Store. The rows are gone.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed, s.rows = true, nil
	s.mu.Unlock()
	s.watchers.Close()
	return nil
}

// view is the rows as core reads them, under the lock.
type view struct{ s *Store }

func (v view) Get(ref idem.Ref) ([]byte, error) { return v.s.rows[ref], nil }

func (v view) Ascend(ix core.Index, prefix, after []byte, fn func([]byte) (bool, error)) error {
	var keys []string
	for ref, b := range v.s.rows {
		if ref.Kind != idem.KindOperation {
			continue
		}
		row, err := codec.Open(ref, b)
		if err != nil {
			return err
		}
		key := core.IndexKey(ix, ref.ID, row.Operation)
		if bytes.HasPrefix(key, prefix) && bytes.Compare(key, after) > 0 {
			keys = append(keys, string(key))
		}
	}
	slices.SortFunc(keys, strings.Compare)
	for _, key := range keys {
		if more, err := fn([]byte(key)); err != nil || !more {
			return err
		}
	}
	return nil
}
