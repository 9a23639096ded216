package pgstore_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// crowd is many callers of a ledger who remember what they were told.
type crowd struct {
	t       testing.TB
	l       ledger
	stop    atomic.Bool
	running sync.WaitGroup
	commits atomic.Int64

	mu      sync.Mutex
	told    map[int]error // of the commit that puts the operation
	longest time.Duration
}

// gather lets callers commit and read until they are dismissed. Two crowds of
// one ledger begin with other numbers.
func gather(t testing.TB, l ledger, first, committers, readers int) *crowd {
	c := &crowd{t: t, l: l, told: map[int]error{}}
	for n := range committers {
		c.running.Go(func() {
			for i := 1; !c.stop.Load(); i++ {
				c.commit((first+n)*1_000_000 + i)
			}
		})
	}
	for range readers {
		c.running.Go(c.read)
	}
	return c
}

func (c *crowd) commit(n int) {
	start := time.Now()
	_, err := c.l.Commit(c.t.Context(), put(n, 0))
	c.note(n, time.Since(start), err)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *crowd) note(n int, took time.Duration, err error) {
	c.commits.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = max(c.longest, took)
	if n > 0 {
		c.told[n] = err
	}
}

// read reads operations that are there, and the clock.
func (c *crowd) read() {
	var now idem.Instant
	for n := 1; !c.stop.Load(); n++ {
		start := time.Now()
		snap, err := c.l.Load(c.t.Context(), op(n%50+1), op(1_000_000+n%50+1))
		if err == nil {
			if snap.Now < now {
				c.t.Errorf("the clock went back %v", now.Sub(snap.Now))
			}
			now = snap.Now
		}
		c.note(0, time.Since(start), nil)
		time.Sleep(5 * time.Millisecond)
	}
}

// busy waits until n more calls have ended.
func (c *crowd) busy(n int64) {
	c.t.Helper()
	from := c.commits.Load()
	eventually(c.t, "calls", func() bool { return c.commits.Load() >= from+n })
}

// dismiss ends the calls and compares what they were told with what there is.
func (c *crowd) dismiss(direct ledger) {
	c.t.Helper()
	c.stop.Store(true)
	c.running.Wait()
	if c.longest > longest {
		c.t.Errorf("a call took %v, want at most %v", c.longest, longest)
	}
	counts := map[string]int{}
	versions := direct.versions(slices.Collect(maps.Keys(c.told)))
	for n, err := range c.told {
		there := versions[n]
		said := "success"
		switch {
		case unknown(err):
			said = "unknown"
		case conflicted(err):
			said = "conflict" // nobody else puts this operation
			c.t.Errorf("operation %d: %v", n, err)
		case err != nil:
			said = "not applied"
		}
		counts[fmt.Sprintf("%s/%d", said, there)]++
		if there > 1 || (err == nil && there == 0) || (said == "not applied" && there == 1) {
			c.t.Errorf("operation %d is at version %d, its commit said: %v", n, there, err)
		}
	}
	c.t.Logf("what commits said and the version that is there: %v; the longest call took %v", counts, c.longest.Round(time.Millisecond))
	if len(c.told) == 0 || counts["success/1"] == 0 {
		c.t.Error("nothing was committed")
	}
}

// TestRestart: whatever ends the server under many callers, none of them is told
// anything that is not so, and none waits for long.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	l := mustLedger(t, s.Database(t))
	c := gather(t, l, 0, 32, 4)
	for _, end := range []func(){s.Kill, func() { s.Stop(pgtest.Fast) }, func() { s.Stop(pgtest.Immediate) }} {
		c.busy(100)
		end()
		time.Sleep(100 * time.Millisecond)
		s.Start()
		c.busy(100)
	}
	c.dismiss(l)
}

// TestDown: a server that stays away costs every caller its patience, and no
// more, however many wait.
func TestDown(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	l := mustLedger(t, s.Database(t))
	l.mustCommit(put(1, 0))
	s.Kill()
	var mu sync.Mutex
	var most time.Duration
	within(t, 2*longest, "all", func() {
		together(300, func(n int) {
			start := time.Now()
			var err error
			if n%3 == 0 {
				_, err = l.Load(t.Context(), op(1), op(n))
			} else {
				_, err = l.Commit(t.Context(), put(1000+n, 0))
			}
			mu.Lock()
			defer mu.Unlock()
			most = max(most, time.Since(start))
			if err == nil || conflicted(err) || (!unknown(err) && !strings.Contains(err.Error(), s.Addr())) {
				t.Errorf("error %v", err)
			}
		})
	})
	if most > patience+timeout+2*time.Second {
		t.Errorf("a call took %v, want at most patience and the time of one statement, %v", most, patience+timeout)
	}
	s.Start()
	var numbers []int
	for n := range 300 {
		numbers = append(numbers, 1000+n)
	}
	if there := l.versions(numbers); len(there) > 0 {
		t.Errorf("these were written: %v", there)
	}
	l.mustCommit(put(1, 1))
}

// TestFailover: when a standby takes over, callers whose URL names both go on.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	standby := primary.Standby(t)
	// With synchronous replication nothing that was reported is lost.
	sql(t, primary.URL("postgres"), `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`)
	sql(t, standby.URL("postgres"), `ALTER SYSTEM SET synchronous_standby_names = ''`, `SELECT pg_reload_conf()`)
	eventually(t, "a synchronous standby", func() bool {
		return ask[int](t, primary.URL("postgres"), `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	url := primary.Database(t)
	both := strings.Replace(url, primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write"
	l := mustLedger(t, both)
	c := gather(t, l, 0, 16, 2)
	c.busy(200)
	before := l.mustClock()
	primary.Kill()
	standby.Promote()
	c.busy(200)
	if now := l.mustClock(); now < before {
		t.Errorf("the clock went back %v", before.Sub(now))
	}
	direct := mustLedger(t, strings.Replace(url, primary.Addr(), standby.Addr(), 1))
	c.dismiss(direct)
	l.mustCommit(put(-1, 0))
	if err := errors.Join(l.Close(), direct.Close()); err != nil {
		t.Error(err)
	}
}
