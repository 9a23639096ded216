package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// pinPath makes the functions, operators and types that statements name without
// a schema those of PostgreSQL, whatever search_path the user, the database or
// the URL has. It runs on every new connection. `SET LOCAL search_path TO DEFAULT`
// takes it back.
//
// A pooler may put every statement on another connection, so there the path is
// only looked at: that of anybody who did not go out of his way is good.
func (p *place) pinPath(ctx context.Context, conn *pgconn.PgConn) error {
	if !p.pooled {
		_, err := conn.Exec(ctx, `SET search_path = pg_catalog`).ReadAll()
		return err
	}
	results, err := conn.Exec(ctx, `SELECT pg_catalog.current_schemas(true)`).ReadAll()
	if err != nil {
		return err
	}
	path := string(results[0].Rows[0][0])
	schemas := strings.Split(strings.Trim(path, "{}"), ",")
	if strings.HasPrefix(schemas[0], "pg_temp_") { // no functions or operators are found there
		schemas = schemas[1:]
	}
	if len(schemas) == 0 || schemas[0] != "pg_catalog" {
		return fmt.Errorf("%w: %s: search_path is %s, and a function in one of its schemas could pass for one of PostgreSQL's: set it, for this user and database, without pg_catalog or with pg_catalog first", errPath, p.name, path)
	}
	return nil
}
