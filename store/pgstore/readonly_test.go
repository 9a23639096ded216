package pgstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// TestStandby: a server that takes no writes keeps no ledger, and says so.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	url := primary.Database(t)
	mustLedger(t, url).mustCommit(put(1, 0))
	standby := primary.Standby(t)
	standby.CatchUp()
	there := strings.Replace(url, primary.Addr(), standby.Addr(), 1)
	for _, existing := range []bool{false, true} {
		_, err := pgstore.Open(t.Context(), pgstore.Config{URL: there, Existing: existing})
		if !errors.Is(err, pgstore.ErrReadOnly) || !strings.Contains(err.Error(), "target_session_attrs") {
			t.Errorf("open: error %v", err)
		}
	}
	if _, _, err := pgstore.Migrate(t.Context(), pgstore.Config{URL: there}); !errors.Is(err, pgstore.ErrReadOnly) {
		t.Errorf("migrate: error %v", err)
	}
	// Of two servers the one that takes writes is found, in any order.
	both := strings.Replace(url, primary.Addr(), standby.Addr()+","+primary.Addr(), 1)
	mustLedger(t, both).mustCommit(put(1, 1))
	for url, wantStandby := range map[string]bool{there: true, both: false} {
		h, err := pgstore.Examine(t.Context(), pgstore.Config{URL: url})
		if err != nil || h.Standby != wantStandby {
			t.Errorf("%s: standby %v, error %v", url, h.Standby, err)
		}
	}
}

// TestDemoted: a primary becomes a standby under the ledger, and a primary
// again.
func TestDemoted(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	l := mustLedger(t, s.Database(t))
	l.mustCommit(put(1, 0))
	s.Stop(pgtest.Fast)
	if err := os.WriteFile(filepath.Join(s.Dir(), "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Start()
	refused(t, l)
	s.Promote()
	l.mustCommit(put(1, 1))
}

// TestReadOnly: a server is made read-only by a setting, which no connection
// notices before it writes. Connections that are open move to where writes are
// taken.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	old := pgtest.Start(t)
	url := old.Database(t)
	standby := old.Standby(t)
	l := mustLedger(t, strings.Replace(url, old.Addr(), old.Addr()+","+standby.Addr(), 1))
	l.mustCommit(put(1, 0))
	sql(t, url, `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
	eventually(t, "read-only", func() bool { return ask[string](t, url, `SHOW transaction_read_only`) == "on" })
	refused(t, l)
	standby.CatchUp()
	standby.Promote()
	// It has learnt the setting from nobody: what ALTER SYSTEM writes is not
	// replicated.
	l.mustCommit(put(1, 1))
	there := mustLedger(t, strings.Replace(url, old.Addr(), standby.Addr(), 1))
	if v, w := l.version(1), there.version(1); v != 2 || w != 2 {
		t.Errorf("versions %d and %d, want 2: not all connections have moved", v, w)
	}
}

// refused expects that nothing can be written, and that it does not take long
// to say so.
func refused(t *testing.T, l ledger) {
	t.Helper()
	within(t, longest, "a refusal", func() {
		_, err := l.Commit(t.Context(), put(1, 1))
		if !errors.Is(err, pgstore.ErrReadOnly) || !strings.Contains(err.Error(), "name the primary") {
			t.Errorf("commit: error %v", err)
		}
	})
}

// TestReadOnlyForAMoment: what is over within the store's patience is not seen.
func TestReadOnlyForAMoment(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url)
	l.mustCommit(put(1, 0))
	name := databaseOf(t, url)
	sql(t, url, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcp-idem' AND datname = current_database()`)
	over := make(chan struct{})
	go func() {
		defer close(over)
		time.Sleep(time.Second)
		sql(t, url, `SET default_transaction_read_only = off`, `ALTER DATABASE `+name+` RESET default_transaction_read_only`)
	}()
	within(t, longest, "the commit", func() { l.mustCommit(put(1, 1)) })
	<-over
}
