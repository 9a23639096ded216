package pgstore_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// looks counts how often waiters have asked the server for a version.
func looks(t testing.TB, s *pgtest.Server) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte(`: SELECT version FROM "mcp_idem".operation WHERE id`))
}

// listeners is how many connections hear what others commit.
func listeners(t testing.TB, url string) int {
	t.Helper()
	return ask[int](t, url, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
}

// TestWatchIsTold: who waits on another host is told, and does not have to look.
func TestWatchIsTold(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Set("log_statement", "all"))
	url := s.Database(t)
	here, there := mustLedger(t, url), mustLedger(t, url)
	here.mustCommit(put(1, 0))
	told := func(n int) {
		t.Helper()
		v := here.version(1)
		before := looks(t, s)
		errs := make(chan error, 1)
		go func() { errs <- there.Watch(t.Context(), id(1), v) }()
		eventually(t, "it listens", func() bool { return listeners(t, url) == 1 })
		eventually(t, "it has looked", func() bool { return looks(t, s) > before })
		time.Sleep(time.Second) // it would look ten times if it had to
		start := time.Now()
		here.mustCommit(put(1, v))
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		t.Logf("told after %v, %d looks", time.Since(start).Round(time.Millisecond), looks(t, s)-before)
		if n := looks(t, s) - before; n > 5 {
			t.Errorf("%d looks", n)
		}
	}
	told(1)
	told(2)
	// The connection that listens is lost. Until there is another one, waiters
	// look by themselves.
	errs := make(chan error, 1)
	v := here.version(1)
	go func() { errs <- there.Watch(t.Context(), id(1), v) }()
	sql(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`)
	here.mustCommit(put(1, v))
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	eventually(t, "it listens again", func() bool { return listeners(t, url) == 1 })
	told(3)
}

// TestWatchMany: every one of many waiters on another host is woken, by few
// notifications.
func TestWatchMany(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	here, there := mustLedger(t, url), mustLedger(t, url)
	const waiters = 300
	errs := make(chan error, waiters)
	for n := range waiters {
		go func() { errs <- there.Watch(t.Context(), id(n), 0) }()
	}
	eventually(t, "it listens", func() bool { return listeners(t, url) == 1 })
	within(t, 10*time.Second, "to wake all", func() {
		together(waiters, func(n int) { here.mustCommit(put(n, 0)) })
		for range waiters {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWatchStrangers: what others send on the channel harms nobody.
func TestWatchStrangers(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url)
	errs := make(chan error, 1)
	go func() { errs <- l.Watch(t.Context(), id(1), 0) }()
	eventually(t, "it listens", func() bool { return listeners(t, url) == 1 })
	sql(t, url, `NOTIFY mcp_idem`, `NOTIFY mcp_idem, 'hello'`, `NOTIFY mcp_idem, 'abc'`, `SELECT pg_notify('mcp_idem', repeat('0', 7999))`, `NOTIFY other, 'x'`)
	l.mustCommit(put(1, 0))
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	if n := listeners(t, url); n != 1 {
		t.Errorf("%d listen", n)
	}
}
