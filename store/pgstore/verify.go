package pgstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Verify reads every row and checks that it is what was written, and that the
// columns by which operations are found agree with the record. It returns how
// many rows there are; ErrDamaged names the first one that is not sound.
func (s *Store) Verify(ctx context.Context) (rows int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = s.scan(ctx, codec.Open, func(pgx.Tx) error { return nil }, func(r *scanned) error {
		rows++
		if r.Operation == nil {
			return nil
		}
		return r.agree()
	})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return rows, s.explain(err)
}

// agree compares the columns of an operation with its record.
func (r *scanned) agree() error {
	rec := r.Operation
	due := dueOf(rec)
	for _, c := range []struct {
		name  string
		agree bool
	}{
		{"state", r.state == name(string(rec.State))},
		{"tenant", r.tenant == name(rec.Scope.Tenant)},
		{"server", r.server == name(rec.Server())},
		{"tool", r.tool == name(rec.Scope.Tool)},
		{"task", r.task == name(rec.Task)},
		{"created", r.created == int64(rec.CreatedAt)},
		{"due", (due == nil) == (r.due == nil) && (due == nil || *due == *r.due)},
		{"lease_token", bytes.Equal(r.token, rec.Lease.Token[:])},
		{"lease_end", r.leaseEnd == rec.Lease.End},
		{"id", rec.Op == (idem.ID{}) || rec.Op == r.Ref.ID},
	} {
		if !c.agree {
			return fmt.Errorf("operation %s: the column %s does not agree with the record: %w", r.Ref.ID, c.name, codec.ErrMalformed)
		}
	}
	return nil
}
