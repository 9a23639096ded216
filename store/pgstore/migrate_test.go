package pgstore_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

func mustMigrate(t testing.TB, url string) (from, to int) {
	t.Helper()
	from, to, err := pgstore.Migrate(t.Context(), pgstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return from, to
}

func TestMigrate(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	if _, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Existing: true}); !errors.Is(err, pgstore.ErrNoSchema) {
		t.Fatalf("an empty database: error %v", err)
	}
	if n := ask[int](t, url, `SELECT count(*) FROM pg_namespace WHERE nspname = 'mcp_idem'`); n != 0 {
		t.Fatal("a ledger was made although none was wanted")
	}
	from, to := mustMigrate(t, url)
	if from != 0 || to == 0 {
		t.Fatalf("migrated from %d to %d", from, to)
	}
	id := ask[string](t, url, `SELECT id::text FROM mcp_idem.ledger`)
	if again, still := mustMigrate(t, url); again != to || still != to {
		t.Fatalf("a second time from %d to %d, want %d", again, still, to)
	}
	l := mustLedger(t, url)
	l.mustCommit(put(1, 0))
	if now := ask[string](t, url, `SELECT id::text FROM mcp_idem.ledger`); now != id {
		t.Fatalf("the ledger's id was %s and is %s", id, now)
	}
}

// TestMigrateAtOnce: whoever comes first makes the ledger, and all use it.
func TestMigrateAtOnce(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	together(8, func(n int) {
		if n%2 == 0 {
			if _, _, err := pgstore.Migrate(t.Context(), pgstore.Config{URL: url}); err != nil {
				t.Errorf("migrate: %v", err)
			}
			return
		}
		s, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer s.Close()
		if _, err := s.Commit(t.Context(), put(n, 0)); err != nil {
			t.Errorf("commit: %v", err)
		}
	})
	if n := ask[int](t, url, `SELECT count(*) FROM mcp_idem.operations`); n != 4 {
		t.Errorf("%d operations, want 4", n)
	}
}

// TestSchemaNewer: a schema that a newer program made is not touched, also when
// it was made while this one runs.
func TestSchemaNewer(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url)
	l.mustCommit(put(1, 0))
	sql(t, url, `UPDATE mcp_idem.ledger SET version = 99`)
	_, openErr := pgstore.Open(t.Context(), pgstore.Config{URL: url})
	_, _, migrateErr := pgstore.Migrate(t.Context(), pgstore.Config{URL: url})
	sql(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcp-idem' AND datname = current_database()`)
	_, loadErr := l.Load(t.Context(), op(1))
	_, commitErr := l.Commit(t.Context(), put(2, 0))
	for what, err := range map[string]error{"open": openErr, "migrate": migrateErr, "load": loadErr, "commit": commitErr} {
		if !errors.Is(err, pgstore.ErrSchemaNew) || !strings.Contains(err.Error(), "run a newer mcp-idem-server") {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// TestAnotherLedger: what took this ledger's place is not taken for it.
func TestAnotherLedger(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url)
	l.mustCommit(put(1, 0))
	sql(t, url, `DROP SCHEMA mcp_idem CASCADE`)
	if _, err := l.Load(t.Context(), op(1)); !errors.Is(err, pgstore.ErrGone) {
		t.Errorf("a dropped ledger: error %v", err)
	}
	mustMigrate(t, url)
	sql(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcp-idem' AND datname = current_database()`)
	if _, err := l.Commit(t.Context(), put(1, 0)); !errors.Is(err, pgstore.ErrGone) {
		t.Errorf("another ledger: error %v", err)
	}
}

// as is the URL of a database for another user, who is made.
func as(t testing.TB, serverURL, user string) string {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	role := user + "_" + strings.TrimPrefix(u.Path, "/")
	sql(t, serverURL, fmt.Sprintf(`CREATE ROLE %q LOGIN`, role))
	t.Cleanup(func() {
		sql(t, serverURL, fmt.Sprintf(`DROP OWNED BY %q; DROP ROLE %q`, role, role))
	})
	u.User = url.User(role)
	return u.String()
}

func role(t testing.TB, userURL string) string {
	t.Helper()
	u, err := url.Parse(userURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.User.Username()
}

// TestPrivileges: what a user lacks is named, with what to do, and a user who
// only has what the documentation names can do everything.
func TestPrivileges(t *testing.T) {
	owner := pgtest.Shared(t).Database(t)
	user := as(t, owner, "clerk")
	denied := func(what string) {
		t.Helper()
		_, err := pgstore.Open(t.Context(), pgstore.Config{URL: user})
		if !errors.Is(err, pgstore.ErrDenied) || !strings.Contains(err.Error(), "migrate") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	denied("no right to create a schema")
	mustMigrate(t, owner)
	denied("no right to use the schema")
	sql(t, owner, fmt.Sprintf(`GRANT USAGE ON SCHEMA mcp_idem TO %q`, role(t, user)),
		fmt.Sprintf(`GRANT SELECT ON mcp_idem.ledger TO %q`, role(t, user)),
		fmt.Sprintf(`GRANT SELECT, UPDATE ON mcp_idem.clock TO %q`, role(t, user)),
		fmt.Sprintf(`GRANT SELECT ON mcp_idem.operation, mcp_idem.entry TO %q`, role(t, user)))
	if _, err := pgstore.Open(t.Context(), pgstore.Config{URL: user}); !errors.Is(err, pgstore.ErrDenied) {
		t.Errorf("no right to write: error %v", err)
	}
	sql(t, owner, fmt.Sprintf(`GRANT INSERT, UPDATE, DELETE ON mcp_idem.operation, mcp_idem.entry TO %q`, role(t, user)))
	l := mustLedger(t, user)
	l.mustCommit(put(1, 0))
	if v := l.version(1); v != 1 {
		t.Errorf("version %d", v)
	}
}

// TestSchemaNames: any name that is plain, and no other.
func TestSchemaNames(t *testing.T) {
	base := pgtest.Shared(t).Database(t)
	for _, name := range []string{"select", "_", strings.Repeat("a", 63)} {
		l := mustLedger(t, base+"&schema="+name)
		l.mustCommit(put(1, 0))
		if n := ask[int](t, base, fmt.Sprintf(`SELECT count(*) FROM %q.operations`, name)); n != 1 {
			t.Errorf("schema %s has %d operations", name, n)
		}
	}
	for _, name := range []string{`a"b`, "Upper", "a-b", "a.b", "1a", "a b", strings.Repeat("a", 64), "ü"} {
		_, err := pgstore.Open(t.Context(), pgstore.Config{URL: base + "&schema=" + url.QueryEscape(name)})
		if err == nil || !strings.Contains(err.Error(), "schema=") {
			t.Errorf("schema %q: error %v", name, err)
		}
	}
	if names := ask[[]string](t, base, `SELECT array_agg(nspname::text) FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')`); len(names) != 3 {
		t.Errorf("schemas %v", names)
	}
}
