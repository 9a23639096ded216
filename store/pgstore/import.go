package pgstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Import stores rows, at their own versions, into an empty ledger, raises the
// ledger's clock to now, and returns how many there were. The rows come in the
// order of Ref.Compare, each once, and belong to the store when they are yielded.
//
// It is one transaction: after an error, or a crash, the ledger is empty as
// before; only idem.ErrCommitUnknown leaves open whether all rows are there. Commits of others wait for it, and then meet what was imported.
func (s *Store) Import(ctx context.Context, now idem.Instant, rows iter.Seq2[idem.Row, error]) (n int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	in := &incoming{}
	in.next, in.stop = iter.Pull2(rows)
	defer in.stop()
	_, _ = rand.Read(in.change[:])
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.vacant(ctx, tx); err != nil {
			return err
		}
		in.operations = true
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{s.schemaName, "operation"}, operationColumns, in); err != nil {
			return err
		}
		in.operations = false
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{s.schemaName, "entry"}, entryColumns, in); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql(`UPDATE {schema}.clock SET ahead = greatest(ahead, $1 - `+wall+`), high = greatest(high, $1)`), int64(now))
		return err
	})
	switch {
	case in.err != nil:
		return 0, in.err
	case err != nil && judge(err) == unknown && ctx.Err() == nil:
		return 0, fmt.Errorf("%w: the connection was lost: see with verify whether the rows are there, all of them or none: %w", idem.ErrCommitUnknown, s.explain(err))
	case err != nil:
		return 0, s.explain(err)
	}
	_ = s.readClock(ctx) // else within a second
	s.watchers.WakeAll()
	return in.checked.N, nil
}

// vacant keeps others from writing and checks that nothing is there.
func (s *Store) vacant(ctx context.Context, tx pgx.Tx) error {
	if err := unbounded(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(`SET LOCAL lock_timeout = '5s'; LOCK TABLE {schema}.operation, {schema}.entry IN SHARE ROW EXCLUSIVE MODE`)); err != nil {
		return err
	}
	var rows bool
	if err := tx.QueryRow(ctx, s.sql(`SELECT EXISTS (SELECT FROM {schema}.operation WHERE version > 0) OR EXISTS (SELECT FROM {schema}.entry WHERE version > 0)`)).Scan(&rows); err != nil {
		return err
	}
	if rows {
		return core.NotEmpty("pgstore: " + s.name)
	}
	_, err := tx.Exec(ctx, s.sql(`DELETE FROM {schema}.operation; DELETE FROM {schema}.entry`)) // placeholders
	return err
}

var (
	operationColumns = []string{"id", "version", "change", "state", "tenant", "server", "tool", "task", "created", "due", "lease_token", "lease_end", "body"}
	entryColumns     = []string{"key", "version", "change", "body", "members", "upto", "extra"}
)

// incoming is the rows of an import as a pgx.CopyFromSource: first those of one
// table, then those of the other.
type incoming struct {
	next func() (idem.Row, error, bool)
	stop func()

	checked    core.Incoming
	change     idem.ChangeID
	operations bool      // the table that is filled
	ahead      *idem.Row // read, and of the other table
	values     []any
	err        error
}

// Next implements pgx.CopyFromSource.
func (in *incoming) Next() bool {
	row := in.ahead
	in.ahead = nil
	if row == nil {
		if row, in.err = in.pull(); row == nil {
			return false
		}
	}
	if (row.Ref.Kind == idem.KindOperation) != in.operations {
		in.ahead = row
		return false
	}
	in.values, in.err = in.columns(row)
	return in.err == nil
}

func (in *incoming) pull() (*idem.Row, error) {
	row, err, ok := in.next()
	if err != nil || !ok {
		return nil, err
	}
	if _, err := in.checked.Next(&row); err != nil {
		return nil, err
	}
	return &row, nil
}

func (in *incoming) columns(row *idem.Row) ([]any, error) {
	if r := row.Operation; r != nil {
		body, err := sealed(row)
		return []any{row.Ref.ID[:], int64(row.Version), in.change[:], name(string(r.State)), name(r.Scope.Tenant), name(r.Server()), name(r.Scope.Tool), name(r.Task),
			int64(r.CreatedAt), dueOf(r), r.Lease.Token[:], int64(r.Lease.End), body}, err
	}
	e, err := newEntry(row)
	return []any{key(row.Ref), int64(row.Version), in.change[:], e.body, e.members, e.upto, e.extra}, err
}

// Values implements pgx.CopyFromSource.
func (in *incoming) Values() ([]any, error) { return in.values, nil }

// Err implements pgx.CopyFromSource.
func (in *incoming) Err() error { return in.err }
