package pgstore_test

import (
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// TestClockSetBack: the server's clock is set back by an hour, or a server takes
// over whose clock is. The ledger's does not go back, and goes on: for those who
// have it open, and for those who open it then.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	l, idle := mustLedger(t, url), mustLedger(t, url)
	l.mustCommit(put(1, 0))
	before := max(l.mustClock(), idle.mustClock())
	if err := l.Close(); err != nil { // notes the time
		t.Fatal(err)
	}
	sql(t, url, `UPDATE mcp_idem.clock SET ahead = ahead - 3600000000000`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcp-idem' AND datname = current_database()`)
	l = mustLedger(t, url)
	for name, l := range map[string]ledger{"new": l, "idle": idle} {
		if now := l.mustClock(); now < before.Add(-time.Second) {
			t.Errorf("%s: the clock went back %v", name, before.Sub(now))
		}
		if now := l.mustLoad(op(1)).Now; now < before.Add(-time.Second) {
			t.Errorf("%s: a snapshot is %v before", name, before.Sub(now))
		}
	}
	for name, l := range map[string]ledger{"idle": idle, "new": l} {
		start := l.mustClock()
		eventually(t, name+": the clock goes on", func() bool { return l.mustClock().Sub(start) > 1500*time.Millisecond }) // by itself it goes on for a second
	}
	stamp := l.mustCommit(put(1, 1)).Time
	if now := idle.mustClock(); now < stamp.Add(-100*time.Millisecond) || stamp < before {
		t.Errorf("a reading at %v, a commit before it at %v, both after %v", now.Time(), stamp.Time(), before.Time())
	}
}

// TestClockIsTheLedgers: leases are judged by the ledger's clock, whatever the
// callers' say.
func TestClockIsTheLedgers(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	mustLedger(t, url)
	sql(t, url, `UPDATE mcp_idem.clock SET ahead = 3600000000000`)
	l := mustLedger(t, url)
	if d := time.Until(l.mustClock().Time()); d < 59*time.Minute || d > 61*time.Minute {
		t.Fatalf("the clock is %v ahead", d)
	}
	mine := idem.Token{1}
	for n, end := range map[int]idem.Instant{1: idem.InstantOf(time.Now().Add(30 * time.Minute)), 2: l.mustClock().Add(30 * time.Minute)} {
		c := put(n, 0)
		c.Puts[0].Operation.State = idem.StateStarted
		c.Puts[0].Operation.Lease = idem.Lease{Fence: 1, Token: mine, End: end}
		l.mustCommit(c)
		held := idem.Change{Needs: []idem.Need{{Ref: op(n), Version: 1, Lease: idem.LeaseHeld, Token: mine}}}
		over := idem.Change{Needs: []idem.Need{{Ref: op(n), Version: 1, Lease: idem.LeaseOver}}}
		_, heldErr := l.Commit(t.Context(), held)
		_, overErr := l.Commit(t.Context(), over)
		if conflicted(heldErr) != (n == 1) || conflicted(overErr) != (n == 2) {
			t.Errorf("lease %d: held: %v, over: %v", n, heldErr, overErr)
		}
	}
}

// TestClockFar: where the server is far away, readings are late by the way, and
// never ahead.
func TestClockFar(t *testing.T) {
	s := pgtest.Shared(t)
	url := s.Database(t)
	p := s.Proxy(t)
	near, far := mustLedger(t, url), mustLedger(t, p.Through(url))
	far.mustCommit(put(1, 0))
	const way = 60 * time.Millisecond
	p.Latency(pgtest.Down, way, 20*time.Millisecond)
	for n := range 10 {
		told := far.mustClock()
		stamp := near.mustCommit(put(100+n, 0)).Time
		if told > stamp {
			t.Errorf("a reading is %v after a later commit", told.Sub(stamp))
		}
		if n%3 == 0 {
			far.mustLoad(op(1))
		}
		stamp = near.mustCommit(put(200+n, 0)).Time
		if behind := stamp.Sub(far.mustClock()); behind > 2*way {
			t.Errorf("a reading is %v before an earlier commit", behind)
		}
	}
}
