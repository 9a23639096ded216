package pgtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestBouncer: sessions are shared, and a LISTEN is heard by nobody.
func TestBouncer(t *testing.T) {
	s := Shared(t)
	url := s.Database(t)
	b := s.Bouncer(t, 1)
	simple := "default_query_exec_mode=simple_protocol"
	one, two := connect(t, b.Through(url)+"&"+simple), connect(t, b.URL(connect(t, url).Config().Database, simple))
	session := "SELECT pg_backend_pid()"
	if x, y := ask[int](t, one, session), ask[int](t, two, session); x != y {
		t.Errorf("sessions %d and %d, want one", x, y)
	}
	exec1(t, one, "LISTEN news")
	exec1(t, connect(t, url), "NOTIFY news")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if n, err := one.WaitForNotification(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pooled connection has heard %v, %v", n, err)
	}
	if err := pgx.BeginFunc(t.Context(), two, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE t (n int)")
		return err
	}); err != nil {
		t.Errorf("a transaction: %v", err)
	}
}
