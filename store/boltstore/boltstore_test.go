package boltstore

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/storetest"
)

func mustOpen(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// dialer opens clients of a ledger's holder.
func dialer(path string) func(t testing.TB) idem.Store {
	return func(t testing.TB) idem.Store {
		t.Helper()
		c, err := Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

func tempPath(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

// testClock is a wall clock that tests move.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newTestClock() *testClock { return &testClock{now: time.Unix(1_700_000_000, 0)} }

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestConformance(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	open := func(t testing.TB, cfg Config) storetest.Subject {
		cur := mustOpen(t, cfg)
		reopen := func(t testing.TB) idem.Store {
			t.Helper()
			if err := cur.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := VerifyRows(cfg.Path); err != nil {
				t.Fatal(err)
			}
			cur = mustOpen(t, cfg)
			return cur
		}
		return storetest.Subject{Store: cur, Reopen: reopen, Another: dialer(cfg.Path)}
	}
	t.Run("holder", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			return open(t, Config{Path: tempPath(t)})
		}, storetest.Features{Durable: true, Moves: true, Several: true})
	})
	t.Run("holder, injected clock", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			clock := newTestClock()
			sub := open(t, Config{Path: tempPath(t), Now: clock.Now, NoSocket: true})
			sub.Advance = clock.Advance
			return sub
		}, storetest.Features{Durable: true, Clock: true, Moves: true})
	})
	t.Run("client", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			path := tempPath(t)
			mustOpen(t, Config{Path: path})
			dial := dialer(path)
			return storetest.Subject{Store: dial(t), Another: dial}
		}, storetest.Features{Several: true})
	})
	t.Run("shared", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			path := tempPath(t)
			join := func(t testing.TB) *Shared {
				s, err := Join(Config{Path: path})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			first, second := join(t), join(t)
			reopen := func(t testing.TB) idem.Store {
				// The holder ends, the other takes over and a new one joins.
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				first, second = second, join(t)
				return second
			}
			return storetest.Subject{Store: second, Reopen: reopen, Another: func(t testing.TB) idem.Store { return join(t) }}
		}, storetest.Features{Durable: true, Several: true})
	})
}
