package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// A snapshot is one statement, which sees one state of the database. Both give
// the clock also where there are no rows.
const (
	loadOne = `SELECT clock_timestamp(), o.version, o.lease_end, o.body
FROM (SELECT 1) one LEFT JOIN {schema}.operation o ON o.id = $1 AND o.version > 0`

	loadMany = `SELECT clock_timestamp(), r.* FROM (SELECT 1) one LEFT JOIN (
  SELECT 0 AS source, id, version, lease_end, body, NULL::bytea[] AS members, 0::bigint AS upto, NULL::bigint[] AS extra
  FROM {schema}.operation WHERE id = ANY ($1) AND version > 0
  UNION ALL
  SELECT 1, key, version, 0, body, members, coalesce(upto, 0), extra
  FROM {schema}.entry WHERE key = ANY ($2) AND version > 0
) r ON true`
)

// load reads rows for one caller.
func (s *Store) load(ctx context.Context, refs []idem.Ref) (idem.Snapshot, error) {
	if len(refs) == 1 && refs[0].Kind == idem.KindOperation {
		return s.loadOperation(ctx, refs[0])
	}
	raw, err := s.loadRaw(ctx, refs)
	if err != nil {
		return idem.Snapshot{}, err
	}
	snap, err := raw.snapshot(refs)
	return snap, s.explain(err)
}

func (s *Store) loadOperation(ctx context.Context, ref idem.Ref) (idem.Snapshot, error) {
	var snap idem.Snapshot
	err := s.read(ctx, func(ctx context.Context) error {
		var now time.Time
		var version, leaseEnd *int64
		var body []byte
		sent := time.Now()
		err := s.pool.QueryRow(ctx, s.sql(loadOne), ref.ID[:]).Scan(&now, &version, &leaseEnd, &body)
		if err != nil {
			return err
		}
		snap = idem.Snapshot{Now: s.clock.server(now, sent)}
		if version == nil {
			return nil
		}
		row, err := opener(codec.Open).operation(ref.ID[:], idem.Version(*version), idem.Instant(*leaseEnd), body)
		snap.Rows = []idem.Row{row}
		return err
	})
	if err != nil {
		return idem.Snapshot{}, err
	}
	return snap, nil
}

// rawRow is a row as it was read.
type rawRow struct {
	ref      idem.Ref
	version  idem.Version
	leaseEnd idem.Instant
	entry
}

type rawRows struct {
	now  idem.Instant
	rows map[idem.Ref]rawRow
}

// snapshot decodes the rows of these refs.
func (raw *rawRows) snapshot(refs []idem.Ref) (idem.Snapshot, error) {
	snap := idem.Snapshot{Now: raw.now, Rows: make([]idem.Row, 0, len(refs))}
	for i, ref := range refs {
		r, ok := raw.rows[ref]
		if !ok || slices.Contains(refs[:i], ref) {
			continue
		}
		var row idem.Row
		var err error
		if ref.Kind == idem.KindOperation {
			row, err = opener(codec.Open).operation(ref.ID[:], r.version, r.leaseEnd, r.body)
		} else {
			row, err = opener(codec.Open).entry(ref, r.version, &r.entry)
		}
		if err != nil {
			return idem.Snapshot{}, err
		}
		snap.Rows = append(snap.Rows, row)
	}
	return snap, nil
}

func (s *Store) loadRaw(ctx context.Context, refs []idem.Ref) (raw *rawRows, err error) {
	ops, entries := [][]byte{}, [][]byte{}
	for i := range refs {
		if refs[i].Kind == idem.KindOperation {
			ops = append(ops, refs[i].ID[:])
		} else {
			entries = append(entries, key(refs[i]))
		}
	}
	err = s.read(ctx, func(ctx context.Context) error {
		sent := time.Now()
		rows, err := s.pool.Query(ctx, s.sql(loadMany), ops, entries)
		if err != nil {
			return err
		}
		raw = &rawRows{rows: make(map[idem.Ref]rawRow, len(refs))}
		now, err := raw.collect(rows)
		if err == nil {
			raw.now = s.clock.server(now, sent)
		}
		return err
	})
	return raw, err
}

func (raw *rawRows) collect(rows pgx.Rows) (now time.Time, err error) {
	defer rows.Close()
	for rows.Next() {
		var source *int
		var version, leaseEnd, upto *int64
		var id []byte
		var r rawRow
		if err := rows.Scan(&now, &source, &id, &version, &leaseEnd, &r.body, &r.members, &upto, &r.extra); err != nil {
			return now, err
		}
		if source == nil { // there are no rows
			continue
		}
		r.version, r.leaseEnd, r.upto = idem.Version(*version), idem.Instant(*leaseEnd), *upto
		if r.ref, err = sourceRef(*source, id); err != nil {
			return now, err
		}
		raw.rows[r.ref] = r
	}
	if err := rows.Err(); err != nil {
		return now, err
	}
	return now, noTime(now)
}
