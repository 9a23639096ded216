package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// steps are the migrations in order; the n-th leads to schema version n+1.
func steps() ([]string, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // in lexical order
	if err != nil {
		return nil, err
	}
	var out []string
	for i, name := range names {
		if want := fmt.Sprintf("migrations/%04d_", i+1); !strings.HasPrefix(name, want) {
			return nil, fmt.Errorf("pgstore: migration %s, want one that begins with %s", name, want)
		}
		b, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, string(b))
	}
	return out, nil
}

// Migrate brings the schema to the version of this program, and creates it where
// there is none. Each step is one transaction, which gives up rather than wait
// for a lock longer than a second. Several may run at once. A schema that is
// newer is ErrSchemaNew.
func Migrate(ctx context.Context, cfg Config) (from, to int, err error) {
	p, err := cfg.read()
	if err != nil {
		return 0, 0, err
	}
	todo, err := steps()
	if err != nil {
		return 0, 0, err
	}
	conn, err := pgx.ConnectConfig(ctx, p.conf.ConnConfig)
	if err != nil {
		return 0, 0, p.explain(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return p.migrate(ctx, conn, todo)
}

func (p *place) migrate(ctx context.Context, conn *pgx.Conn, todo []string) (from, to int, err error) {
	from, _, err = p.version(ctx, conn)
	if err != nil && !errors.Is(err, ErrNoSchema) {
		return 0, 0, err
	}
	to = from
	for tries := 0; to < len(todo); {
		done, err := p.step(ctx, conn, to, todo[to])
		switch {
		case err == nil:
			to = done
		case raced(err) && tries < 20: // another process does the same
			tries++
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return from, to, ctx.Err()
			}
			if to, _, err = p.version(ctx, conn); err != nil && !errors.Is(err, ErrNoSchema) {
				return from, to, err
			}
		default:
			return from, to, fmt.Errorf("migration to schema version %d: %w", to+1, p.explain(err))
		}
	}
	if to > len(todo) {
		return from, to, p.tooNew(to)
	}
	return from, to, nil
}

// step carries out one migration, if the version is still the one it starts
// from, and returns the version afterwards.
func (p *place) step(ctx context.Context, conn *pgx.Conn, from int, text string) (to int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// A migration may take longer than a statement of a running ledger.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = 0`); err != nil {
			return err
		}
		if from == 0 {
			// Without it the user may still own a schema that was made for it.
			if err := p.prepareSchema(ctx, tx); err != nil {
				return err
			}
		}
		// The row is the lock: whoever comes second waits, and then sees the version.
		if err := tx.QueryRow(ctx, p.sql(`SELECT version FROM {schema}.ledger FOR UPDATE`)).Scan(&to); err != nil {
			return err
		}
		if to != from {
			return nil
		}
		if _, err := tx.Exec(ctx, p.sql(text)); err != nil {
			return err
		}
		to++
		_, err := tx.Exec(ctx, p.sql(`UPDATE {schema}.ledger SET version = $1`), to)
		return err
	})
	return to, err
}

// prepareSchema makes the schema and the row that tells its version.
func (p *place) prepareSchema(ctx context.Context, tx pgx.Tx) error {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)`, p.schemaName).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.Exec(ctx, p.sql(`CREATE SCHEMA {schema}`)); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, p.sql(`CREATE TABLE IF NOT EXISTS {schema}.ledger (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  id      uuid    NOT NULL DEFAULT gen_random_uuid(), -- tells this ledger from any other
  version integer NOT NULL                            -- of the schema
); INSERT INTO {schema}.ledger (version) VALUES (0) ON CONFLICT (one) DO NOTHING`))
	return err
}

// raced reports whether two processes made the same thing at once.
func raced(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pg.Code {
	case "23505", "42P06", "42P07", "42710", "40001", "40P01", "55P03":
		return true
	}
	return false
}

// version reads the schema's version and the ledger's id.
func (p *place) version(ctx context.Context, conn *pgx.Conn) (v int, id [16]byte, err error) {
	var there bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'ledger')`, p.schemaName).Scan(&there); err != nil {
		return 0, id, p.explain(err)
	}
	if !there {
		return 0, id, fmt.Errorf("%w: %s has no %s.ledger", ErrNoSchema, p.name, p.schemaName)
	}
	if err := conn.QueryRow(ctx, p.sql(`SELECT version, id FROM {schema}.ledger`)).Scan(&v, &id); err != nil {
		return 0, id, p.explain(err)
	}
	return v, id, nil
}

func (p *place) tooNew(v int) error {
	return fmt.Errorf("%w: %s is at schema version %d: run a newer mcp-idem-server", ErrSchemaNew, p.name, v)
}

// current checks that the schema is the one that this program knows.
func (p *place) current(v, known int) error {
	switch {
	case v < known:
		return fmt.Errorf("%w: %s is at schema version %d, this program needs %d: run `mcp-idem-server migrate`", ErrSchemaOld, p.name, v, known)
	case v > known:
		return p.tooNew(v)
	}
	return nil
}
