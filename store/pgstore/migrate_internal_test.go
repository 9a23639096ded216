package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// next is what a later program knows of migrations.
func next(t testing.TB, more ...string) []string {
	t.Helper()
	todo, err := steps()
	if err != nil {
		t.Fatal(err)
	}
	return append(todo, more...)
}

func mustRead(t testing.TB, url string) (*place, *pgx.Conn) {
	t.Helper()
	p, err := Config{URL: url}.read()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := p.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return p, conn
}

// TestSchemaOlder: a later program does not work on an older schema by itself: it
// says what to do, and it is done without loss.
func TestSchemaOlder(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	p, conn := mustRead(t, url)
	old := len(next(t))
	if _, to, err := p.migrate(t.Context(), conn, next(t)); err != nil || to != old {
		t.Fatalf("migrated to %d: %v", to, err)
	}
	todo := next(t, `ALTER TABLE {schema}.operation ADD COLUMN later int`, `CREATE TABLE {schema}.later (n int)`)
	if _, _, err := p.establish(t.Context(), todo); !errors.Is(err, ErrSchemaOld) || !strings.Contains(err.Error(), "mcp-idem-server migrate") {
		t.Fatalf("error %v", err)
	}
	if from, to, err := p.migrate(t.Context(), conn, todo); err != nil || from != old || to != old+2 {
		t.Fatalf("migrated from %d to %d: %v", from, to, err)
	}
	if _, _, err := p.establish(t.Context(), todo); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.establish(t.Context(), next(t)); !errors.Is(err, ErrSchemaNew) {
		t.Fatalf("error %v", err)
	}
}

// TestMigrationFails: a step that cannot be done is not there by half, and those
// before it are.
func TestMigrationFails(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	p, conn := mustRead(t, url)
	good := len(next(t)) + 1
	todo := next(t, `CREATE TABLE {schema}.good (n int)`, `CREATE TABLE {schema}.half (n int); SELECT 1/0`)
	_, to, err := p.migrate(t.Context(), conn, todo)
	if err == nil || to != good || !strings.Contains(err.Error(), "division by zero") {
		t.Fatalf("migrated to %d: %v", to, err)
	}
	v, _, err := p.version(t.Context(), conn)
	if err != nil || v != good {
		t.Errorf("version %d, %v", v, err)
	}
	var half *string
	if err := conn.QueryRow(t.Context(), `SELECT to_regclass('mcp_idem.half')::text`).Scan(&half); err != nil || half != nil {
		t.Errorf("half a step is there: %v, %v", half, err)
	}
}

// TestMigrationWaits: a migration never makes those queue up for long who use the
// table that it waits for, and goes on once that is free.
func TestMigrationWaits(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	p, conn := mustRead(t, url)
	if _, _, err := p.migrate(t.Context(), conn, next(t)); err != nil {
		t.Fatal(err)
	}
	_, holder := mustRead(t, url)
	tx, err := holder.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM mcp_idem.operation`); err != nil { // a long report
		t.Fatal(err)
	}
	todo := next(t, `ALTER TABLE {schema}.operation ADD COLUMN later int`)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if _, _, err := p.migrate(ctx, conn, todo); err == nil {
		t.Fatal("migrated over a lock")
	}
	_, again := mustRead(t, url)
	done := make(chan error, 1)
	go func() {
		_, _, err := p.migrate(t.Context(), again, todo)
		done <- err
	}()
	_, user := mustRead(t, url)
	var longest time.Duration
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		start := time.Now()
		if _, err := user.Exec(t.Context(), `SELECT FROM mcp_idem.operation LIMIT 1`); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(start))
	}
	if longest > 1600*time.Millisecond || longest < 200*time.Millisecond {
		t.Errorf("others wait for %v, want about a second", longest)
	}
	select {
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
