package pgtest

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestStandby(t *testing.T) {
	primary := Start(t, Set("max_connections", "30"))
	url := primary.Database(t)
	p := connect(t, url)
	exec1(t, p, "CREATE TABLE t (n int)")
	standby := primary.Standby(t)
	exec1(t, p, "INSERT INTO t VALUES (1)")
	standby.CatchUp()
	db := p.Config().Database
	c := connect(t, standby.URL(db))
	if n := rows(t, c); n != 1 {
		t.Errorf("the standby shows %d rows, want 1", n)
	}
	_, err := c.Exec(t.Context(), "INSERT INTO t VALUES (2)")
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "25006" {
		t.Errorf("a write on the standby: %v, want 25006 read_only_sql_transaction", err)
	}
	standby.Kill() // it finds its way again
	standby.Start()
	exec1(t, p, "INSERT INTO t VALUES (3)")
	standby.CatchUp()

	primary.Kill()
	standby.Promote()
	c = connect(t, standby.URL(db))
	exec1(t, c, "INSERT INTO t VALUES (4)")
	if n := rows(t, c); n != 3 {
		t.Errorf("the new primary has %d rows, want 3", n)
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("the killed primary answers")
	}
}
