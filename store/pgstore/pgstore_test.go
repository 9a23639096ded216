package pgstore_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
	"github.com/mcp-idem/mcp-idem/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func mustOpen(t testing.TB, cfg pgstore.Config) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// subjects makes ledgers in schemas of their own in one database.
func subjects(database func(params ...string) string) storetest.Factory {
	var n atomic.Int32
	return func(t testing.TB) storetest.Subject {
		url := database(fmt.Sprintf("schema=ledger_%d", n.Add(1)))
		st := mustOpen(t, pgstore.Config{URL: url})
		open := func(t testing.TB) idem.Store { return mustOpen(t, pgstore.Config{URL: url}) }
		reopen := func(t testing.TB) idem.Store {
			_ = st.Close()
			st = mustOpen(t, pgstore.Config{URL: url})
			return st
		}
		return storetest.Subject{Store: st, Reopen: reopen, Another: open}
	}
}

func TestStore(t *testing.T) {
	s := pgtest.Shared(t)
	storetest.Run(t, subjects(func(params ...string) string { return s.URL("postgres", params...) }), storetest.Features{Durable: true, Moves: true, Several: true})
}
