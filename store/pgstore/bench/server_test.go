package bench

import (
	"context"
	"os"
	"testing"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// server starts PostgreSQL with its defaults, fsync among them, for one
// benchmark.
func server(b *testing.B) *pgtest.Server {
	b.Helper()
	return pgtest.Start(b)
}

func openStore(b *testing.B, url string) *pgstore.Store {
	b.Helper()
	st, err := pgstore.Open(context.Background(), pgstore.Config{URL: url})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	return st
}
