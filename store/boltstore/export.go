package boltstore

import (
	"context"
	"runtime/debug"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// exportBytes and exportRows bound what Export holds in memory at a time; one
// row may be larger.
const (
	exportRows  = 256
	exportBytes = 1 << 20
)

// Export calls yield with every row of one snapshot, versions and extended lease
// ends included, in the order of Ref.Compare, and returns the ledger's clock at
// the snapshot. An error of yield ends it and is returned as it is. A row that a
// newer program wrote is refused: it would lose what this one does not know.
// What tools keep in buckets of their own (Store.Effect) is not the ledger's, and
// stays.
//
// Until it returns, a commit that has to grow the file waits, and so does Close:
// yield must not use the store.
func (s *Store) Export(ctx context.Context, yield func(idem.Row) error) (now idem.Instant, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	tx, err := s.snapshot()
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	now = s.clock.Now()
	for _, kind := range idem.Kinds() {
		var after []byte
		for {
			rows, err := s.exportPage(ctx, tx, kind, after)
			if err != nil {
				return 0, err
			}
			if len(rows) == 0 {
				break
			}
			// Outside of what looks for damage: an error or a panic of yield is
			// its own.
			for i := range rows {
				if err := yield(rows[i]); err != nil {
					return 0, err
				}
			}
			last := rows[len(rows)-1].Ref.ID
			after = last[:]
		}
	}
	return now, nil
}

func (s *Store) snapshot() (tx *bbolt.Tx, err error) {
	defer s.observe(&err)
	defer trap(s.path, &err)
	return s.db.Begin(false)
}

// exportPage reads the rows of a kind that come after an id.
func (s *Store) exportPage(ctx context.Context, tx *bbolt.Tx, kind idem.Kind, after []byte) (rows []idem.Row, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	defer s.observe(&err)
	defer trap(s.path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c := tx.Bucket(rowBuckets[kind]).Cursor()
	k, v := c.Seek(after)
	if after != nil && string(k) == string(after) {
		k, v = c.Next()
	}
	for size := 0; k != nil && len(rows) < exportRows && size < exportBytes; k, v = c.Next() {
		row, err := codec.OpenWhole(idem.Ref{Kind: kind, ID: idem.ID(k)}, v) // 20 bytes: opening has verified it
		if err != nil {
			return nil, err
		}
		if row.Operation != nil {
			s.leases.Overlay(row.Ref.ID, row.Operation)
		}
		rows = append(rows, row)
		size += len(v)
	}
	return rows, nil
}
