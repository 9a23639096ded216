package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Export calls yield with every row of one snapshot, versions and extended lease
// ends included, in the order of Ref.Compare, and returns the ledger's clock at
// the snapshot. An error of yield ends it and is returned as it is. A row that a
// newer program wrote is refused: it would lose what this one does not know.
//
// It holds one snapshot of the database until it returns, which keeps the server
// from cleaning up what changes meanwhile.
func (s *Store) Export(ctx context.Context, yield func(idem.Row) error) (now idem.Instant, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	var own error // of yield
	err = s.scan(ctx, codec.OpenWhole, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.sql(`SELECT `+moment)).Scan(&now)
	}, func(r *scanned) error {
		own = yield(r.Row)
		return own
	})
	switch {
	case own != nil:
		return 0, own
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	return now, s.explain(err)
}

// scanned is a row as it lies in the database: its content, and of an operation
// the columns that repeat some of it.
type scanned struct {
	idem.Row
	state, tenant, server, tool, task string
	created                           int64
	due                               *int64
	token                             []byte
	leaseEnd                          idem.Instant
}

// scan reads every row in one snapshot, in the order of Ref.Compare. It takes as
// long as it takes: the limits of a statement do not hold.
func (s *Store) scan(ctx context.Context, open opener, begun func(pgx.Tx) error, f func(*scanned) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := unbounded(ctx, tx); err != nil {
			return err
		}
		if err := begun(tx); err != nil {
			return err
		}
		if err := s.scanOperations(ctx, tx, open, f); err != nil {
			return err
		}
		return s.scanEntries(ctx, tx, open, f)
	})
}

func unbounded(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0`)
	return err
}

func (s *Store) scanOperations(ctx context.Context, tx pgx.Tx, open opener, f func(*scanned) error) error {
	rows, err := tx.Query(ctx, s.sql(`SELECT id, version, lease_end, body, state, tenant, server, tool, task, created, due, lease_token
FROM {schema}.operation WHERE version > 0 ORDER BY id`))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r scanned
		var id, body []byte
		var version idem.Version
		if err := rows.Scan(&id, &version, &r.leaseEnd, &body, &r.state, &r.tenant, &r.server, &r.tool, &r.task, &r.created, &r.due, &r.token); err != nil {
			return err
		}
		if r.Row, err = open.operation(id, version, r.leaseEnd, body); err != nil {
			return err
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *Store) scanEntries(ctx context.Context, tx pgx.Tx, open opener, f func(*scanned) error) error {
	rows, err := tx.Query(ctx, s.sql(`SELECT key, version, body, members, coalesce(upto, 0), extra FROM {schema}.entry WHERE version > 0 ORDER BY key`))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r scanned
		var k []byte
		var version idem.Version
		var e entry
		if err := rows.Scan(&k, &version, &e.body, &e.members, &e.upto, &e.extra); err != nil {
			return err
		}
		ref, err := refOf(k)
		if err != nil {
			return err
		}
		if r.Row, err = open.entry(ref, version, &e); err != nil {
			return err
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}
