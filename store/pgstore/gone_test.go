package pgstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// TestAnotherLedgerInItsPlace: a running store never takes an empty ledger for
// its own, whether or not it notices the moment in which there was none.
func TestAnotherLedgerInItsPlace(t *testing.T) {
	for name, notices := range map[string]bool{"after it was missed": true, "while it was idle": false} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Shared(t).Database(t)
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			old := mustOpen(t, pgstore.Config{URL: url})
			if !old.Made() {
				t.Error("it is not said that a ledger was made")
			}
			change := idem.Change{Puts: []idem.Row{{Ref: idem.Ref{Kind: idem.KindKey, ID: idem.ID{1}}, Key: &idem.KeyRow{Generation: 1}}}}
			if _, err := old.Commit(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), `DROP SCHEMA mcp_idem CASCADE`); err != nil {
				t.Fatal(err)
			}
			if notices {
				if _, err := old.Commit(t.Context(), change); !errors.Is(err, pgstore.ErrGone) {
					t.Errorf("without tables: error %v", err)
				}
			}
			mustOpen(t, pgstore.Config{URL: url})
			if !notices {
				time.Sleep(1500 * time.Millisecond) // longer than a connection is trusted
			}
			if _, err := old.Commit(t.Context(), change); !errors.Is(err, pgstore.ErrGone) {
				t.Errorf("a commit into another ledger: error %v", err)
			}
			if _, err := old.Load(t.Context(), change.Puts[0].Ref); !errors.Is(err, pgstore.ErrGone) {
				t.Errorf("a load from another ledger: error %v", err)
			}
		})
	}
}

// TestReadOnlyUser: who may not write is refused before anything depends on it.
func TestReadOnlyUser(t *testing.T) {
	s := pgtest.Start(t)
	url := s.Database(t)
	mustOpen(t, pgstore.Config{URL: url})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA mcp_idem TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA mcp_idem TO reader`); err != nil {
		t.Fatal(err)
	}
	reader := asUser(t, url, "reader")
	if _, err := pgstore.Open(t.Context(), pgstore.Config{URL: reader}); !errors.Is(err, pgstore.ErrDenied) {
		t.Errorf("a gateway that cannot write: error %v", err)
	}
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: reader, Existing: true})
	if err != nil {
		t.Fatalf("a command that reads: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

func asUser(t *testing.T, url, user string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return "postgres://" + user + "@" + cfg.Host + ":" + strconv.Itoa(int(cfg.Port)) + "/" + cfg.Database + "?sslmode=disable"
}
