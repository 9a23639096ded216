package pgstore_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// The statements that write an operation: alone, and for a group.
const (
	insertion = `insert into "mcp_idem".operation`
	update    = `update "mcp_idem".operation`
	grouped   = `operation_put as`
)

// behindProxy opens a ledger twice: through a proxy that breaks, and directly.
func behindProxy(t testing.TB) (l, direct ledger, p *pgtest.Proxy) {
	t.Helper()
	s := pgtest.Shared(t)
	url := s.Database(t)
	direct = mustLedger(t, url)
	p = s.Proxy(t)
	return mustLedger(t, p.Through(url)), direct, p
}

// TestLost: whether the request is lost or the answer to it, the change is made
// once, and Commit says so.
func TestLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*pgtest.Proxy, string) *pgtest.Trap{
		"answer": (*pgtest.Proxy).DropNextResponse, "request": (*pgtest.Proxy).DropNextRequest,
	} {
		t.Run(name, func(t *testing.T) {
			l, direct, p := behindProxy(t)
			full := put(5, 0) // one that the lean statement does not know
			full.Needs = append(full.Needs, idem.Need{Ref: op(6)})
			for _, tc := range []struct {
				name, sql string
				change    idem.Change
				version   idem.Version
			}{
				{"a first version", insertion, put(1, 0), 1},
				{"a next one", update, put(1, 1), 2},
				{"by the full statement", grouped, full, 1},
				{"and on", update, put(1, 2), 3},
			} {
				trap := lose(p, tc.sql)
				within(t, longest, tc.name, func() { l.mustCommit(tc.change) })
				if !trap.Sprung() {
					t.Fatalf("%s: nothing was lost", tc.name)
				}
				ref := tc.change.Puts[0].Ref
				if v := direct.mustLoad(ref).Row(ref).Version; v != tc.version {
					t.Errorf("%s: version %d, want %d", tc.name, v, tc.version)
				}
			}
		})
	}
}

// TestLostConflict: a conflict is one also where the first answer was lost.
func TestLostConflict(t *testing.T) {
	t.Parallel()
	l, direct, p := behindProxy(t)
	direct.mustCommit(put(1, 0))
	p.DropNextResponse(insertion)
	_, err := l.Commit(t.Context(), put(1, 0))
	// It cannot be told from a change that was applied and then overwritten.
	if !unknown(err) && !conflicted(err) {
		t.Errorf("error %v", err)
	}
	if v := direct.version(1); v != 1 {
		t.Errorf("version %d", v)
	}
}

// TestLostAndOvertaken: while the outcome is not known, somebody else changes
// the row. Then it may stay unknown, and nothing wrong is said.
func TestLostAndOvertaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lose    func(*pgtest.Proxy, string) *pgtest.Trap
		applied bool
	}{
		"answer": {(*pgtest.Proxy).DropNextResponse, true}, "request": {(*pgtest.Proxy).DropNextRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, direct, p := behindProxy(t)
			direct.mustCommit(put(1, 0))
			lost := tc.lose(p, update)
			next := p.HoldNextRequest(`"mcp_idem".operation`) // of the store that asks what became of it
			errs := make(chan error, 1)
			go func() {
				_, err := l.Commit(t.Context(), put(1, 1))
				errs <- err
			}()
			lost.Wait()
			next.Wait()
			v := direct.version(1)
			if (v == 2) != tc.applied {
				t.Fatalf("version %d", v)
			}
			direct.mustCommit(put(1, v))
			next.Release()
			switch err := <-errs; {
			case unknown(err):
			case err == nil && tc.applied:
			default:
				t.Errorf("error %v", err)
			}
			if got := direct.version(1); got != v+1 {
				t.Errorf("version %d, want %d", got, v+1)
			}
		})
	}
}

// TestLostForGood: what cannot be found out in time is unknown, and what was
// never sent is not.
func TestLostForGood(t *testing.T) {
	t.Parallel()
	l, direct, p := behindProxy(t)
	errs := make(chan error, 1)
	lost := p.DropNextResponse(insertion)
	go func() {
		_, err := l.Commit(t.Context(), put(1, 0))
		errs <- err
	}()
	lost.Wait()
	p.Cut()
	within(t, longest, "the first", func() {
		if err := <-errs; !unknown(err) || conflicted(err) || !errors.Is(err, pgstore.ErrUnreachable) {
			t.Errorf("its answer was lost: error %v", err)
		}
	})
	within(t, longest, "the second", func() {
		if _, err := l.Commit(t.Context(), put(2, 0)); unknown(err) || !errors.Is(err, pgstore.ErrUnreachable) {
			t.Errorf("it was never sent: error %v", err)
		}
	})
	if v, w := direct.version(1), direct.version(2); v != 1 || w != 0 {
		t.Errorf("versions %d and %d, want 1 and 0", v, w)
	}
	p.Restore()
	l.mustCommit(put(2, 0))
}

// TestLostInBatches: of many that share statements, each is made once, whichever
// request or answer is lost.
func TestLostInBatches(t *testing.T) {
	l, direct, p := behindProxy(t)
	const callers = 64
	for round := range 3 {
		p.DropNextResponse(grouped)
		p.DropNextRequest(grouped)
		p.DropNextResponse(insertion)
		var failed atomic.Int32
		together(callers, func(n int) {
			if _, err := l.Commit(t.Context(), put(round*callers+n, 0)); err != nil {
				failed.Add(1)
				t.Errorf("commit %d: %v", n, err)
			}
		})
		var numbers []int
		for n := range callers {
			numbers = append(numbers, round*callers+n)
		}
		there := direct.versions(numbers)
		for _, n := range numbers {
			if there[n] != 1 {
				t.Errorf("operation %d is at version %d", n, there[n])
			}
		}
		if failed.Load() > 0 {
			return
		}
	}
}

// TestLateRequest: a request that comes when its sender has given it up is not
// applied beside the one that took its place.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	l, direct, p := behindProxy(t)
	held := p.HoldNextRequest(insertion)
	within(t, longest, "commit", func() {
		if _, err := l.Commit(t.Context(), put(1, 0)); err != nil && !unknown(err) {
			t.Errorf("error %v", err)
		}
	})
	before := direct.version(1)
	held.Release()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if v := direct.version(1); v > 1 || v < before {
			t.Fatalf("version %d", v)
		}
	}
}
