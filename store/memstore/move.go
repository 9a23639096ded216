package memstore

import (
	"context"
	"iter"
	"slices"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Export calls yield with every row of one snapshot, versions and extended lease
// ends included, in the order of Ref.Compare, and returns the ledger's clock at
// the snapshot. An error of yield ends it and is returned as it is.
func (s *Store) Export(ctx context.Context, yield func(idem.Row) error) (idem.Instant, error) {
	rows, now, err := s.snapshot(ctx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := yield(row); err != nil {
			return 0, err
		}
	}
	return now, nil
}

func (s *Store) snapshot(ctx context.Context) ([]idem.Row, idem.Instant, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	rows := make([]idem.Row, 0, len(s.rows))
	for ref, b := range s.rows {
		row, err := codec.OpenWhole(ref, b)
		if err != nil {
			return nil, 0, err
		}
		if row.Operation != nil {
			s.leases.Overlay(ref.ID, row.Operation)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b idem.Row) int { return a.Ref.Compare(b.Ref) })
	return rows, s.clock.Now(), nil
}

// Import stores rows, at their own versions, into an empty ledger, raises the
// ledger's clock to now, and returns how many there were. The rows come in the
// order of Ref.Compare, each once. After an error the ledger is empty as before.
func (s *Store) Import(ctx context.Context, now idem.Instant, rows iter.Seq2[idem.Row, error]) (int, error) {
	if err := s.vacant(ctx); err != nil {
		return 0, err
	}
	var in core.Incoming
	sealed := map[idem.Ref][]byte{}
	for row, err := range rows {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		if sealed[row.Ref], err = in.Next(&row); err != nil {
			return 0, err
		}
	}
	// Rows may have come meanwhile: the lock is not held while others are asked.
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if len(s.rows) > 0 {
		return 0, core.NotEmpty("memstore")
	}
	s.rows = sealed
	s.clock.Raise(now)
	s.watchers.WakeAll()
	return in.N, nil
}

func (s *Store) vacant(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if len(s.rows) > 0 {
		return core.NotEmpty("memstore")
	}
	return nil
}
