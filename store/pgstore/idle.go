package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// doubtAfter is how long a connection lies idle before it is tried.
	doubtAfter = time.Second
	// pongTime is how long it may take to answer.
	pongTime = time.Second
)

// try makes sure that a connection which lay idle still leads to the server: a
// firewall may have forgotten it, or a failover moved its address. Where no
// answer comes, the others are no better, and each would cost the next caller as
// much: all are made anew. It asks for the ledger's id, which may not be the same
// any more. It has the form of pgxpool.Config.ShouldPing; a connection that
// failed is closed, which the pool's own ping finds.
func (s *Store) try(ctx context.Context, p pgxpool.ShouldPingParams) bool {
	if p.IdleDuration < doubtAfter {
		return false
	}
	bound, cancel := context.WithTimeout(ctx, pongTime)
	defer cancel()
	var id [16]byte
	if p.Conn.QueryRow(bound, s.sql(`SELECT id FROM {schema}.ledger`)).Scan(&id) == nil {
		if s.same(id) == nil {
			return false
		}
		_ = p.Conn.Close(bound)
	}
	if ctx.Err() == nil {
		s.pool.Reset()
	}
	return true
}
