package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// calls are all that a guard asks of a ledger.
func (l ledger) calls(n int) map[string]func() error {
	ctx := l.t.Context()
	return map[string]func() error{
		"commit": func() error { _, err := l.Commit(ctx, put(n, 0)); return err },
		"load":   func() error { _, err := l.Load(ctx, op(n)); return err },
		"list":   func() error { _, err := l.List(ctx, idem.Query{}); return err },
		"clock":  func() error { _, err := l.Clock(ctx); return err },
		"watch":  func() error { return l.Watch(ctx, id(n), 0) },
	}
}

// TestSilence: bytes vanish on their way, in one direction or the other, and no
// connection is closed. No call waits for longer than it may, and all is well as
// soon as bytes arrive again.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]pgtest.Direction{"requests": pgtest.Up, "answers": pgtest.Down} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := pgtest.Shared(t)
			url := s.Database(t)
			direct := mustLedger(t, url)
			p := s.Proxy(t)
			l := mustLedger(t, p.Through(url))
			together(4, func(n int) { l.mustCommit(put(10+n, 0)) }) // several connections
			time.Sleep(1100 * time.Millisecond)                     // they are old enough to be doubted, and the clock to be asked
			p.Timeout(dir, 0)
			start := time.Now()
			calls := l.calls(1)
			errs := make(chan error, len(calls))
			for what, call := range calls {
				go func() {
					err := call()
					if took := time.Since(start); took > longest || err == nil {
						t.Errorf("%s: error %v after %v", what, err, took)
					}
					errs <- err
				}()
			}
			for range calls {
				if err := <-errs; err == nil {
					t.Error("a call succeeded")
				}
			}
			t.Logf("all took %v", time.Since(start).Round(time.Millisecond))
			within(t, longest, "open", func() {
				_, err := pgstore.Open(t.Context(), pgstore.Config{URL: p.Through(url), Patience: patience, StatementTimeout: timeout})
				if !errors.Is(err, pgstore.ErrUnreachable) {
					t.Errorf("open: error %v", err)
				}
			})
			v := direct.version(1)
			if v > 1 || (dir == pgtest.Up && v != 0) {
				t.Errorf("version %d", v)
			}
			p.Heal()
			within(t, longest, "the next commit", func() { l.mustCommit(put(2, 0)) })
		})
	}
}

// TestHalfOpen: connections that lie idle lose their other end without a word,
// as behind a firewall that forgets. The next commit notices and takes a new
// connection, well within its patience.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	url := s.Database(t)
	p := s.Proxy(t)
	l := ledger{mustOpen(t, pgstore.Config{URL: p.Through(url)}), t}
	together(8, func(n int) { l.mustCommit(put(10+n, 0)); l.mustLoad(op(n)) })
	p.Forget()
	time.Sleep(1500 * time.Millisecond) // who reads the clock every second has met it
	within(t, 5*time.Second, "a commit", func() { l.mustCommit(put(1, 0)) })
	within(t, 5*time.Second, "a load", func() { l.mustLoad(op(1)) })
}

// TestImpatientCaller: a caller who leaves is not kept, whatever the server does.
func TestImpatientCaller(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	l := mustLedger(t, s.Database(t))
	l.mustCommit(put(1, 0))
	s.Pause()
	for what, call := range map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error { _, err := l.Commit(ctx, put(2, 0)); return err },
		"load":   func(ctx context.Context) error { _, err := l.Load(ctx, op(1)); return err },
		"watch":  func(ctx context.Context) error { return l.Watch(ctx, id(1), 1) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(start); took > 2*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v after %v", what, err, took)
		}
	}
	s.Resume()
	switch _, err := l.Commit(t.Context(), put(2, 0)); { // the first may have been applied
	case err == nil, conflicted(err):
	default:
		t.Error(err)
	}
}
