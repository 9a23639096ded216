package pgstore_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
	"github.com/mcp-idem/mcp-idem/store/storetest"
)

func TestStore(t *testing.T) {
	base := os.Getenv("PGDEV")
	storetest.Run(t, func(t testing.TB) storetest.Subject {
		conn, err := pgx.Connect(t.Context(), base)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), "DROP SCHEMA IF EXISTS mcp_idem CASCADE")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close(t.Context())
		var st *pgstore.Store
		open := func(t testing.TB) idem.Store {
			if st != nil {
				st.Close()
			}
			st, err = pgstore.Open(t.Context(), pgstore.Config{URL: base})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		t.Cleanup(func() { st.Close() })
		return storetest.Subject{Store: open(t), Reopen: open}
	}, storetest.Features{Durable: true})
}
