package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Health is what Examine found.
type Health struct {
	Place   string // without the password
	Server  string // its version
	User    string
	Schema  int // version of the schema; 0: there is none
	Program int // version of the schema that this program knows
	Standby bool
	// Lag is how far the standby that is furthest behind is behind its primary;
	// on a standby, the age of the change that it replayed last. 0: there is none,
	// or it is not behind.
	Lag      time.Duration
	Standbys int
	Problems []Problem
}

// Problem is something that keeps a ledger from working, or from being safe.
type Problem struct {
	What, Remedy string
	Fatal        bool // it does not work at all
}

// Examine looks at a database as the place of a ledger, and changes nothing. Where
// no server takes writes it connects to a standby. An error means that the database cannot be looked
// at.
func Examine(ctx context.Context, cfg Config) (Health, error) {
	p, err := cfg.read()
	if err != nil {
		return Health{}, err
	}
	todo, err := steps()
	if err != nil {
		return Health{}, err
	}
	conn, err := pgx.ConnectConfig(ctx, p.conf.ConnConfig)
	if err != nil { // among the hosts is none that takes writes; any may tell why
		cc := p.conf.ConnConfig.Copy()
		cc.ValidateConnect = nil
		if conn, err = pgx.ConnectConfig(ctx, cc); err != nil {
			return Health{}, p.explain(err)
		}
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	x := &examination{place: p, conn: conn, h: Health{Place: p.name, Program: len(todo)}}
	for _, look := range []func(context.Context) error{x.server, x.schema, x.privileges, x.logged, x.durability, x.replication, x.room, x.notifications} {
		if err := look(ctx); err != nil {
			return x.h, p.explain(err)
		}
	}
	return x.h, nil
}

type examination struct {
	*place
	conn   *pgx.Conn
	h      Health
	denied bool // there is a ledger, and this user may not look into it
}

func (x *examination) problem(fatal bool, remedy, format string, args ...any) {
	x.h.Problems = append(x.h.Problems, Problem{What: fmt.Sprintf(format, args...), Remedy: remedy, Fatal: fatal})
}

func (x *examination) server(ctx context.Context) error {
	var readOnly string
	err := x.conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_user::text, pg_is_in_recovery(), current_setting('default_transaction_read_only')`).
		Scan(&x.h.Server, &x.h.User, &x.h.Standby, &readOnly)
	if err != nil {
		return err
	}
	if x.h.Standby {
		x.problem(true, primaryRemedy, "the server is a standby and takes no writes")
	} else if readOnly == "on" {
		x.problem(true, "set default_transaction_read_only to off for this user and database", "the database is read-only for %s", x.h.User)
	}
	return nil
}

func (x *examination) schema(ctx context.Context) error {
	v, _, err := x.version(ctx, x.conn)
	switch {
	case errors.Is(err, ErrNoSchema):
		return nil
	case errors.Is(err, ErrDenied):
		x.denied = true
		x.problem(true, fmt.Sprintf("GRANT USAGE ON SCHEMA %[1]s TO %[2]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s", x.schemaName, x.h.User),
			"there is a ledger, and %s may not use it", x.h.User)
		return nil
	case err != nil:
		return err
	}
	x.h.Schema = v
	if err := x.current(v, x.h.Program); err != nil {
		x.problem(true, "see the message", "%v", err)
	}
	return nil
}

// privileges checks what a gateway does with the tables, or that it may make
// them.
func (x *examination) privileges(ctx context.Context) error {
	if x.denied {
		return nil
	}
	if x.h.Schema == 0 {
		var may bool
		if err := x.conn.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE')`).Scan(&may); err != nil {
			return err
		}
		if !may {
			x.problem(true, fmt.Sprintf("GRANT CREATE ON DATABASE … TO %s, or let an owner run `mcp-idem-server migrate` once", x.h.User), "there is no ledger yet, and %s may not create a schema", x.h.User)
		}
		return nil
	}
	for _, need := range []struct{ table, privileges string }{
		{"operation", "SELECT, INSERT, UPDATE, DELETE"}, {"entry", "SELECT, INSERT, UPDATE, DELETE"},
		{"clock", "SELECT, UPDATE"}, {"ledger", "SELECT"},
	} {
		rows, err := x.conn.Query(ctx, `SELECT p FROM unnest(string_to_array($2, ', ')) p WHERE NOT has_table_privilege($1::text, p)`,
			x.sql("{schema}.")+need.table, need.privileges)
		if err != nil {
			return err
		}
		lacking, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, l := range lacking {
			x.problem(true, fmt.Sprintf("GRANT %s ON %s.%s TO %s", l, x.schemaName, need.table, x.h.User), "%s lacks %s on %s.%s", x.h.User, l, x.schemaName, need.table)
		}
	}
	return nil
}

// durability looks for settings with which a commit that was reported can be
// lost: a lost claim would be an effect without a record.
func (x *examination) durability(ctx context.Context) error {
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		var v *string
		if err := x.conn.QueryRow(ctx, `SELECT current_setting($1, true)`, name).Scan(&v); err != nil {
			return err
		}
		if v != nil && *v == "off" {
			x.problem(false, name+" = on", "%s is off: a crash of the server can lose claims, and then an effect happens twice", name)
		}
	}
	return nil
}

// logged looks for tables that a crash of the server empties.
func (x *examination) logged(ctx context.Context) error {
	if x.h.Schema == 0 {
		return nil
	}
	rows, err := x.conn.Query(ctx, `SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relpersistence <> 'p'`, x.schemaName)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, t := range tables {
		x.problem(true, fmt.Sprintf("ALTER TABLE %s.%s SET LOGGED", x.schemaName, t), "the table %s.%s is unlogged: a crash of the server empties it, and then every effect can happen once more", x.schemaName, t)
	}
	return err
}

func (x *examination) replication(ctx context.Context) error {
	var lag *float64
	if x.h.Standby {
		if err := x.conn.QueryRow(ctx, `SELECT extract(epoch FROM now() - pg_last_xact_replay_timestamp())::float8`).Scan(&lag); err != nil {
			return err
		}
	} else if err := x.conn.QueryRow(ctx, `SELECT count(*), extract(epoch FROM max(replay_lag))::float8 FROM pg_stat_replication`).Scan(&x.h.Standbys, &lag); err != nil {
		return err
	}
	if x.h.Standbys > 0 && lag == nil && !x.h.Standby {
		var hidden bool
		if err := x.conn.QueryRow(ctx, `SELECT coalesce(bool_and(state IS NULL), false) FROM pg_stat_replication`).Scan(&hidden); err != nil {
			return err
		}
		if hidden {
			x.problem(false, fmt.Sprintf("GRANT pg_monitor TO %s", x.h.User), "%s may not see how far the standbys are behind", x.h.User)
		}
	}
	if lag != nil {
		x.h.Lag = time.Duration(*lag * float64(time.Second))
	}
	var names string
	if err := x.conn.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names')`).Scan(&names); err != nil {
		return err
	}
	if !x.h.Standby && names != "" {
		var answering int
		if err := x.conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')`).Scan(&answering); err != nil {
			return err
		}
		if answering == 0 {
			x.problem(false, "start the standbys that synchronous_standby_names asks for, or clear it (a user without pg_monitor cannot see them)",
				"synchronous_standby_names is set and no standby is seen: every commit waits for one")
		}
	}
	if x.h.Standbys > 0 && names == "" {
		x.problem(false, "set synchronous_standby_names, or accept that a failover may lose the last claims",
			"%d standbys replicate asynchronously: a failover can lose claims that were reported, and then an effect happens twice", x.h.Standbys)
	}
	return nil
}

func (x *examination) room(ctx context.Context) error {
	var limit, used int
	err := x.conn.QueryRow(ctx, `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int, count(*)::int
FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&limit, &used)
	if err != nil {
		return err
	}
	// The pool, and one that listens.
	if want := int(x.conf.MaxConns) + 1; limit-used < want {
		x.problem(false, "raise max_connections, or lower pool_max_conns in the URL", "a gateway uses up to %d connections, and the server has %d left of %d", want, max(0, limit-used), limit)
	}
	return nil
}

func (x *examination) notifications(ctx context.Context) error {
	if x.pooled {
		x.problem(false, "leave pooler=transaction out where you connect to the server itself", "behind a pooler, gateways on other hosts are not notified: a call that waits for theirs looks every %v", pollDeaf)
		return nil
	}
	if _, err := x.conn.Exec(ctx, `LISTEN mcp_idem_doctor; UNLISTEN mcp_idem_doctor`); err != nil && !x.h.Standby {
		x.problem(false, "none: it works, slower", "the server does not know LISTEN (%v): a call that waits for another gateway's looks every %v", err, pollDeaf)
	}
	return nil
}
