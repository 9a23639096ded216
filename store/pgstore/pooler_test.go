package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
	"github.com/mcp-idem/mcp-idem/store/storetest"
)

// TestStoreBehindPooler: PgBouncer gives every transaction whatever connection
// is free.
func TestStoreBehindPooler(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	b := s.Bouncer(t, 4)
	database := func(params ...string) string { return b.URL("postgres", append(params, "pooler=transaction")...) }
	storetest.Run(t, subjects(t, s.URL("postgres"), database), storetest.Features{Durable: true, Moves: true, Several: true})
}

// TestPoolerUnnamed: who forgot to say that there is a pooler is told to.
func TestPoolerUnnamed(t *testing.T) {
	s := pgtest.Shared(t)
	b := s.Bouncer(t, 4)
	url := b.Through(s.Database(t))
	if _, err := pgstore.Open(t.Context(), pgstore.Config{URL: url}); err == nil || !strings.Contains(err.Error(), "pooler=transaction") {
		t.Errorf("error %v", err)
	}
}

// TestWatchBehindPooler: nobody is told there, so waiters look by themselves.
func TestWatchBehindPooler(t *testing.T) {
	s := pgtest.Shared(t)
	url := s.Database(t)
	b := s.Bouncer(t, 2)
	here, there := mustLedger(t, url), mustLedger(t, b.Through(url)+"&pooler=transaction")
	here.mustCommit(put(1, 0))
	for v := here.version(1); v < 4; v++ {
		errs := make(chan error, 1)
		go func() { errs <- there.Watch(t.Context(), id(1), v) }()
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		here.mustCommit(put(1, v))
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	if n := listeners(t, url); n != 0 {
		t.Errorf("%d listen", n)
	}
}
