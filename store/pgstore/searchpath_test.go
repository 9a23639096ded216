package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// hostile is a schema full of what statements use without naming a schema. Where
// it is found first, nothing works, or not as it should.
const hostile = `
CREATE SCHEMA evil;
CREATE TABLE evil.operation (id int); CREATE TABLE evil.entry (id int); CREATE TABLE evil.clock (id int); CREATE TABLE evil.ledger (id int);
CREATE TABLE evil.unnest (x int); CREATE TABLE evil.pg_class (x int); CREATE TABLE evil.pg_namespace (x int); CREATE TABLE evil.pg_stat_activity (x int);
CREATE FUNCTION evil.unnest(bytea[]) RETURNS SETOF bytea LANGUAGE sql AS $$ SELECT pg_catalog.unnest($1) LIMIT 1 $$;
CREATE FUNCTION evil.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE sql AS $$ SELECT 77::bigint $$;
CREATE FUNCTION evil.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS $$ SELECT 'evil'::text $$;
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2001-01-01'::timestamptz $$;
CREATE FUNCTION evil.extract(text, timestamptz) RETURNS numeric LANGUAGE sql AS $$ SELECT 5::numeric $$;
CREATE FUNCTION evil.date_part(text, timestamptz) RETURNS double precision LANGUAGE sql AS $$ SELECT 5::float8 $$;
CREATE FUNCTION evil.length(bytea) RETURNS int LANGUAGE sql AS $$ SELECT 1000000000 $$;
CREATE FUNCTION evil.count(bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT 99::bigint $$;
CREATE FUNCTION evil.sum(bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT 0::bigint $$;
CREATE FUNCTION evil.array_agg(bigint) RETURNS bigint[] LANGUAGE sql AS $$ SELECT '{}'::bigint[] $$;
CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'no'::text $$;
CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'no'::text $$;
CREATE FUNCTION evil.current_schemas(boolean) RETURNS name[] LANGUAGE sql AS $$ SELECT '{pg_catalog}'::name[] $$;
CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT NULL::void $$;
CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT '00000000-0000-0000-0000-000000000000'::uuid $$;
CREATE FUNCTION evil.never(bytea, bytea) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE FUNCTION evil.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE FUNCTION evil.zero(bigint, bigint) RETURNS bigint LANGUAGE sql AS $$ SELECT 0::bigint $$;
CREATE FUNCTION evil.empty(bytea[], bytea[]) RETURNS bytea[] LANGUAGE sql AS $$ SELECT '{}'::bytea[] $$;
CREATE OPERATOR evil.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
CREATE OPERATOR evil.<> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
CREATE OPERATOR evil.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
CREATE OPERATOR evil.+ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.zero);
CREATE OPERATOR evil.* (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.zero);
CREATE OPERATOR evil.|| (LEFTARG = bytea[], RIGHTARG = bytea[], FUNCTION = evil.empty);
CREATE DOMAIN evil.text AS pg_catalog.text CHECK (VALUE = 'evil');
CREATE DOMAIN evil.bytea AS pg_catalog.bytea CHECK (VALUE IS NULL);
CREATE DOMAIN evil.uuid AS pg_catalog.text;
GRANT ALL ON SCHEMA evil TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA evil TO PUBLIC;`

// hostileDatabase is a database in which everybody finds the hostile schema
// first.
func hostileDatabase(t testing.TB) (url string) {
	t.Helper()
	url = pgtest.Shared(t).Database(t)
	name := databaseOf(t, url)
	sql(t, url, hostile, `ALTER DATABASE `+name+` SET search_path = evil, pg_catalog, public`)
	return url
}

// TestSearchPath: whatever a database or a user has for search_path, the ledger
// works on its own tables with PostgreSQL's own functions, operators and types.
func TestSearchPath(t *testing.T) {
	url := hostileDatabase(t)
	c := connect(t, url)
	defer c.Close(context.Background())
	var equal, evil bool
	if err := c.QueryRow(t.Context(), `SELECT '\x01'::pg_catalog.bytea = '\x01'::pg_catalog.bytea, clock_timestamp() < '2002-01-01'`).Scan(&equal, &evil); err != nil || equal || !evil {
		t.Fatalf("the schema does no harm: %v", err)
	}
	l := mustLedger(t, url)
	if d := time.Since(l.mustClock().Time()); d.Abs() > time.Minute {
		t.Errorf("the clock is %v away", d)
	}
	randomChanges(t, l, mustSeed(t), 6)
	l.mustCommit(put(1, 0))
	for _, q := range []idem.Query{{}, {Order: idem.ByTask, Tenant: "acme", Task: "task"}, {Order: idem.ByState, State: idem.StatePlanned}} {
		if page, err := l.List(t.Context(), q); err != nil || len(page.Records) == 0 {
			t.Errorf("list %v: %d records, %v", q.Order, len(page.Records), err)
		}
	}
	if n, err := l.Verify(t.Context()); err != nil || n == 0 {
		t.Errorf("verify: %d rows, %v", n, err)
	}
	if h, err := pgstore.Examine(t.Context(), pgstore.Config{URL: url}); err != nil || h.Schema != h.Program {
		t.Errorf("examine: %+v, %v", h, err)
	}
	errs := make(chan error, 1)
	go func() { errs <- l.Watch(t.Context(), id(1), 1) }()
	mustLedger(t, url).mustCommit(put(1, 1))
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

// TestSearchPathOfEffects: an effect finds what its author is used to find.
func TestSearchPathOfEffects(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	name := databaseOf(t, url)
	sql(t, url, `CREATE SCHEMA shop; CREATE TABLE shop.orders (id int)`, `ALTER DATABASE `+name+` SET search_path = shop`)
	l := mustLedger(t, url)
	l.mustCommit(put(1, 0))
	effect := l.Effect(func(ctx context.Context, tx pgx.Tx, _ idem.Dispatch) (idem.Outcome, error) {
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES (1)`)
		return idem.Outcome{}, err
	})
	err := effect.Atomic(t.Context(), idem.Dispatch{}, func(_ idem.Outcome, err error) (idem.Change, error) { return put(1, 1), err })
	if err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, url, `SELECT count(*) FROM shop.orders`); n != 1 || l.version(1) != 2 {
		t.Errorf("%d orders, version %d", n, l.version(1))
	}
}

// TestSearchPathBehindPooler: there the path cannot be set, so one that is not to
// be trusted is refused, and one that is is not.
func TestSearchPathBehindPooler(t *testing.T) {
	s := pgtest.Shared(t)
	url := hostileDatabase(t)
	b := s.Bouncer(t, 2)
	pooled := pgstore.Config{URL: b.Through(url) + "&pooler=transaction"}
	if _, err := pgstore.Open(t.Context(), pooled); err == nil || !strings.Contains(err.Error(), "search_path is {evil,pg_catalog") {
		t.Errorf("error %v", err)
	}
	name := databaseOf(t, url)
	for _, path := range []string{"evil", `"$user", public`, "pg_catalog, evil", "''"} {
		sql(t, url, fmt.Sprintf(`ALTER DATABASE %s SET search_path = %s`, name, path))
		sql(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
		var st *pgstore.Store
		eventually(t, "the pooler has seen that its connections are lost", func() bool {
			var err error
			if st, err = pgstore.Open(t.Context(), pooled); err != nil && !strings.Contains(err.Error(), "57P01") {
				t.Fatalf("%s: %v", path, err)
			}
			return err == nil
		})
		_ = st.Close()
	}
}
