package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// occupy takes every connection that a user can get.
func occupy(t *testing.T, url string) (free func()) {
	t.Helper()
	var conns []*pgx.Conn
	refusals := 0 // one is not enough: others may be about to leave
	eventually(t, "no connection is left", func() bool {
		c, err := pgx.Connect(t.Context(), url)
		if refusals++; err == nil {
			conns, refusals = append(conns, c), 0
		}
		return refusals == 10 && len(conns) > 0
	})
	free = sync.OnceFunc(func() {
		for _, c := range conns {
			_ = c.Close(context.Background())
		}
	})
	t.Cleanup(free)
	return free
}

// TestNoConnectionLeft: a commit waits for a connection, for as long as its
// patience allows.
func TestNoConnectionLeft(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Set("max_connections", "12"))
	owner := s.Database(t)
	user := owned(t, owner)
	l := mustLedger(t, user+"&pool_max_conn_idle_time=100ms&pool_health_check_period=50ms")
	l.mustCommit(put(1, 0))
	taken := func() (free func()) {
		eventually(t, "the ledger is without a connection", func() bool {
			return ask[int](t, owner, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mcp-idem'`) == 0
		})
		return occupy(t, strings.Replace(user, "?", "?application_name=others&", 1))
	}
	free := taken()
	go func() { time.Sleep(time.Second); free() }()
	within(t, longest, "a commit that waits", func() { l.mustCommit(put(1, 1)) })

	free = taken()
	within(t, longest, "a commit in vain", func() {
		_, err := l.Commit(t.Context(), put(1, 2))
		if unknown(err) || !errors.Is(err, pgstore.ErrUnreachable) || !strings.Contains(err.Error(), "max_connections") {
			t.Errorf("error %v", err)
		}
	})
	within(t, longest, "open", func() {
		_, err := pgstore.Open(t.Context(), pgstore.Config{URL: user, Patience: time.Second})
		if !errors.Is(err, pgstore.ErrUnreachable) || !strings.Contains(err.Error(), "max_connections") {
			t.Errorf("open: error %v", err)
		}
	})
	free()
	l.mustCommit(put(1, 2))
}

// owned is the URL of a database for a user who may make a ledger there, and is
// no superuser: for those the server keeps connections.
func owned(t testing.TB, owner string) string {
	t.Helper()
	user := as(t, owner, "owner")
	sql(t, owner, fmt.Sprintf(`GRANT CREATE ON DATABASE %s TO %q`, databaseOf(t, owner), role(t, user)))
	return user
}

// TestPoolLimit: however much there is to do, a ledger has no more connections
// than its pool may, and one that listens.
func TestPoolLimit(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url+"&pool_max_conns=3&application_name=limited")
	go func() { _ = l.Watch(t.Context(), id(1), 1) }()
	c := gather(t, l, 0, 40, 40)
	var most atomic.Int32
	for range 20 {
		n := ask[int32](t, url, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'limited'`)
		most.Store(max(most.Load(), n))
	}
	c.dismiss(l)
	if n := most.Load(); n < 2 || n > 4 {
		t.Errorf("%d connections, want 2 to 4", n)
	}
}
