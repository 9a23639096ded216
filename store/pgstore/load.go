package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// A snapshot is one statement, which sees one state of the database. All give the
// clock also where there are no rows.
const (
	loadOne = `SELECT c.now, 0, o.id, o.version, o.lease_end, o.body, NULL::bytea[], NULL::bigint, NULL::bigint[]
FROM (SELECT ` + moment + ` AS now) c
LEFT JOIN {schema}.operation o ON o.id = $1 AND o.version > 0`

	loadOperations = `SELECT c.now, 0, o.id, o.version, o.lease_end, o.body, NULL::bytea[], NULL::bigint, NULL::bigint[]
FROM (SELECT ` + moment + ` AS now) c
LEFT JOIN {schema}.operation o ON o.id = ANY ($1) AND o.version > 0`

	loadBoth = `SELECT c.now, r.source, r.id, r.version, r.lease_end, r.body, r.members, r.upto, r.extra
FROM (SELECT ` + moment + ` AS now) c LEFT JOIN (
  SELECT 0 AS source, id, version, lease_end, body, NULL::bytea[] AS members, NULL::bigint AS upto, NULL::bigint[] AS extra
  FROM {schema}.operation WHERE id = ANY ($1) AND version > 0
  UNION ALL
  SELECT 1, key, version, 0, body, members, upto, extra
  FROM {schema}.entry WHERE key = ANY ($2) AND version > 0
) r ON true`
)

// Load implements idem.Store.
func (s *Store) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return idem.Snapshot{}, err
	}
	ops := make([][]byte, 0, len(refs))
	var entries [][]byte
	for i := range refs {
		if refs[i].Kind == idem.KindOperation {
			ops = append(ops, refs[i].ID[:])
		} else {
			entries = append(entries, key(refs[i]))
		}
	}
	text, args := loadOperations, []any{ops}
	switch {
	case len(entries) > 0:
		text, args = loadBoth, []any{ops, entries}
	case len(ops) == 1:
		text, args = loadOne, []any{ops[0]}
	}
	var snap idem.Snapshot
	err := s.read(ctx, func(ctx context.Context) error {
		sent := time.Now()
		rows, err := s.pool.Query(ctx, s.sql(text), args...)
		if err != nil {
			return err
		}
		snap = idem.Snapshot{Rows: make([]idem.Row, 0, len(refs))}
		if err := collect(rows, &snap); err != nil {
			return err
		}
		s.clock.observe(snap.Now, sent)
		return nil
	})
	if err != nil {
		return idem.Snapshot{}, err
	}
	snap.Now = s.clock.forward(snap.Now)
	return snap, nil
}

func collect(rows pgx.Rows, snap *idem.Snapshot) error {
	defer rows.Close()
	for rows.Next() {
		var (
			source   *int
			id       []byte
			version  *int64
			leaseEnd *int64
			e        entry
			upto     *int64
		)
		if err := rows.Scan(&snap.Now, &source, &id, &version, &leaseEnd, &e.body, &e.members, &upto, &e.extra); err != nil {
			return err
		}
		if version == nil { // there are no rows
			continue
		}
		row, err := decode(*source, id, idem.Version(*version), idem.Instant(*leaseEnd), &e, upto)
		if err != nil {
			return err
		}
		snap.Rows = append(snap.Rows, row)
	}
	return rows.Err()
}

// decode makes a row of what was read from one of the tables.
func decode(source int, id []byte, version idem.Version, leaseEnd idem.Instant, e *entry, upto *int64) (idem.Row, error) {
	if source == 0 {
		return opener(codec.Open).operation(id, version, leaseEnd, e.body)
	}
	ref, err := refOf(id)
	if err != nil {
		return idem.Row{}, err
	}
	if upto != nil {
		e.upto = *upto
	}
	return opener(codec.Open).entry(ref, version, e)
}
