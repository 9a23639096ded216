package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// TestClose: Close waits for what is on its way, refuses the rest, and leaves
// nothing behind.
func TestClose(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	direct := mustLedger(t, url)
	direct.mustLoad(op(1))
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	c := gather(t, ledger{s, t}, 0, 32, 4)
	watched := make(chan error, 1)
	go func() { watched <- s.Watch(context.Background(), id(-1), 0) }()
	c.busy(100)
	within(t, longest, "close", func() { _ = s.Close() })
	if err := <-watched; err != nil && !errors.Is(err, idem.ErrClosed) { // it may have been woken to look again
		t.Errorf("watch: error %v", err)
	}
	c.dismiss(direct)
	if _, err := s.Commit(t.Context(), put(-2, 0)); !errors.Is(err, idem.ErrClosed) {
		t.Errorf("commit: error %v", err)
	}
	_ = direct.Close()
}

// TestCloseWithoutServer: a server that is gone, or does not answer, holds
// nobody up.
func TestCloseWithoutServer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*pgtest.Server){"gone": (*pgtest.Server).Kill, "silent": (*pgtest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pgtest.Start(t)
			l := mustLedger(t, s.Database(t))
			l.mustCommit(put(1, 0))
			go func() { _ = l.Watch(context.Background(), id(1), 1) }()
			eventually(t, "it listens", func() bool {
				return ask[int](t, s.URL("postgres"), `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'`) == 1
			})
			fault(s)
			errs := make(chan error, 40)
			for n := range cap(errs) {
				go func() {
					_, err := l.Commit(context.Background(), put(10+n, 0))
					errs <- err
				}()
			}
			time.Sleep(200 * time.Millisecond)
			within(t, longest+timeout, "close", func() { _ = l.Close() })
			for range cap(errs) {
				select {
				case err := <-errs:
					if !errors.Is(err, idem.ErrClosed) && !unknown(err) && !errors.Is(err, pgstore.ErrUnreachable) {
						t.Errorf("commit: error %v", err)
					}
				case <-time.After(time.Second):
					t.Fatal("a commit is still under way")
				}
			}
		})
	}
}
