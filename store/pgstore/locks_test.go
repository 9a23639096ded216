package pgstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// pair puts two operations at once.
func pair(at idem.Version) idem.Change {
	a, b := put(1, at), put(2, at)
	a.Needs, a.Puts = append(a.Needs, b.Needs...), append(a.Puts, b.Puts...)
	return a
}

// TestDeadlock: a stranger locks two rows in the other order. Whomever the
// server picks, the commit succeeds once the stranger is gone.
func TestDeadlock(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url)
	l.mustCommit(pair(0))
	lock := func(n int) string { return `SELECT FROM mcp_idem.operation WHERE id = '\x` + hexID(n) + `' FOR UPDATE` }
	first, second := 1, 2
	if hexID(2) < hexID(1) {
		first, second = 2, 1
	}
	for round := range idem.Version(2) {
		stranger := connect(t, url)
		// The one that finds a deadlock is its victim: we, then the stranger.
		wait := []string{`SET deadlock_timeout = '1h'`, `SET deadlock_timeout = '1ms'`}[round]
		for _, text := range []string{wait, `BEGIN`, lock(second)} {
			if _, err := stranger.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		errs := make(chan error, 1)
		go func() { _, err := l.Commit(t.Context(), pair(round+1)); errs <- err }()
		eventually(t, "the commit waits for the stranger", func() bool {
			return ask[int](t, url, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
		})
		_, err := stranger.Exec(t.Context(), lock(first))
		if (err != nil) != (round == 1) {
			t.Fatalf("round %d: the stranger: %v", round, err)
		}
		_ = stranger.Close(t.Context())
		if err := <-errs; err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if v, w := l.version(1), l.version(2); v != round+2 || w != round+2 {
			t.Errorf("round %d: versions %d and %d", round, v, w)
		}
	}
	if n := deadlocks(t, url); n != 2 {
		t.Errorf("%d deadlocks, want 2", n)
	}
}

func hexID(n int) string {
	const digits = "0123456789abcdef"
	var b []byte
	for _, c := range id(n) {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return string(b)
}

func deadlocks(t testing.TB, url string) int {
	t.Helper()
	return ask[int](t, url, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}

// TestNoDeadlocks: those who write the same rows in different orders wait for
// one another, and not for each other: a deadlock costs a second.
func TestNoDeadlocks(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	stores := []ledger{mustLedger(t, url), mustLedger(t, url)}
	marks := func(order ...int) (marks []idem.Mark) {
		for _, n := range order {
			marks = append(marks, idem.Mark{Ref: idem.Ref{Kind: idem.KindDelivery, ID: id(n)}, Delivered: &idem.Delivered{Extra: []uint64{uint64(time.Now().UnixNano())}}},
				idem.Mark{Ref: idem.Ref{Kind: idem.KindSlot, ID: id(n)}, Twin: id(int(time.Now().UnixNano()))})
		}
		return marks
	}
	slot := func(n int) idem.Row {
		return idem.Row{Ref: idem.Ref{Kind: idem.KindSlot, ID: id(n)}, Slot: &idem.Slot{}}
	}
	start := time.Now()
	together(8, func(n int) {
		l := stores[n%2]
		for i := range 12 {
			change := []idem.Change{
				{Marks: marks(1, 2, 3)},
				{Marks: marks(3, 2, 1)},
				{Puts: []idem.Row{slot(7), slot(8), slot(9)}, Marks: marks(2, 1)},
				{Puts: []idem.Row{slot(9), slot(8), slot(7)}, Marks: marks(1, 2)},
				{Needs: []idem.Need{{Ref: op(1000 + i)}}, Puts: []idem.Row{{Ref: op(2000 + i), Operation: record(1)}}},
				{Needs: []idem.Need{{Ref: op(2000 + i)}}, Puts: []idem.Row{{Ref: op(1000 + i), Operation: record(1)}}},
				{Drops: []idem.Ref{slot(7).Ref, slot(9).Ref}},
				{Drops: []idem.Ref{slot(9).Ref, slot(7).Ref}},
			}[n]
			if _, err := l.Commit(t.Context(), change); err != nil && !conflicted(err) {
				t.Errorf("change %d: %v", n, err)
			}
		}
	})
	t.Logf("in %v", time.Since(start).Round(time.Millisecond))
	for _, l := range stores {
		_ = l.Close() // what they count is told then
	}
	if n := deadlocks(t, url); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// TestIsolation: a user whose transactions are stricter gets more conflicts
// inside the server, and none of them leaves the store.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			url := pgtest.Shared(t).Database(t) + "&default_transaction_isolation=" + strings.ReplaceAll(level, " ", "%20")
			if got := ask[string](t, url, `SHOW transaction_isolation`); got != level {
				t.Fatalf("isolation is %s", got)
			}
			counted(t, mustLedger(t, url), 6, 5)
		})
	}
}

// counted lets several raise one operation's version, each so many times.
func counted(t testing.TB, l ledger, callers, each int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	together(callers, func(int) {
		for n := 0; n < each; {
			snap, err := l.Load(ctx, op(1))
			if err != nil {
				t.Errorf("load: %v", err)
				return
			}
			switch _, err = l.Commit(ctx, put(1, snap.Row(op(1)).Version)); {
			case err == nil:
				n++
			case !conflicted(err):
				t.Errorf("commit: %v", err)
				return
			}
		}
	})
	if v := l.version(1); v != idem.Version(callers*each) {
		t.Errorf("version %d, want %d", v, callers*each)
	}
}

// TestLocked: a table that is locked for longer than a statement may take is
// waited for, and then the commit says that nothing was changed.
func TestLocked(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	l := ledger{mustOpen(t, pgstore.Config{URL: url, Patience: time.Second, StatementTimeout: 500 * time.Millisecond}), t}
	l.mustCommit(put(1, 0))
	stranger := connect(t, url)
	defer stranger.Close(context.Background())
	if _, err := stranger.Exec(t.Context(), `BEGIN; LOCK TABLE mcp_idem.operation`); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "a commit in vain", func() {
		if _, err := l.Commit(t.Context(), put(1, 1)); err == nil || unknown(err) || conflicted(err) {
			t.Errorf("error %v", err)
		}
	})
	if _, err := stranger.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	l.mustCommit(put(1, 1))
}
