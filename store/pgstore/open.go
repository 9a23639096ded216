package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Open connects to the ledger and checks that its schema is the one that this
// program knows. In a database without a ledger it makes one, which takes the
// right to create a schema, unless Config.Existing says otherwise. An older
// schema is ErrSchemaOld (see Migrate), a newer one ErrSchemaNew. It gives up
// when ctx ends, or after Config.Patience where the server cannot be reached.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	p, err := cfg.read()
	if err != nil {
		return nil, err
	}
	todo, err := steps()
	if err != nil {
		return nil, err
	}
	s := &Store{place: p, clock: &clock{now: machine}, watchers: core.NewWatchers()}
	if s.ledger, s.made, err = p.establish(ctx, todo); err != nil {
		return nil, err
	}
	p.conf.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		var v int
		var id [16]byte
		var ahead time.Duration
		var high idem.Instant
		err := conn.QueryRow(ctx, p.sql(`SELECT l.version, l.id, c.ahead, c.high FROM {schema}.ledger l, {schema}.clock c`)).Scan(&v, &id, &ahead, &high)
		if err != nil {
			return p.explain(err)
		}
		if err := s.same(id); err != nil {
			return err
		}
		s.clock.row(ahead, high)
		return p.current(v, len(todo))
	}
	p.conf.ShouldPing = s.try
	if s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), p.conf); err != nil {
		return nil, p.explain(err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if _, err := s.Clock(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	s.wg.Go(s.keepTime)
	return s, nil
}

// establish makes the ledger if there is none, and returns its id.
func (p *place) establish(ctx context.Context, todo []string) (id [16]byte, made bool, err error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return id, false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	v, id, err := p.version(ctx, conn)
	if !p.existing && (errors.Is(err, ErrNoSchema) || (err == nil && v == 0)) {
		if _, _, err := p.migrate(ctx, conn, todo); err != nil {
			return id, false, err
		}
		made = true
		v, id, err = p.version(ctx, conn)
	}
	if err != nil {
		return id, false, err
	}
	if err := p.current(v, len(todo)); err != nil || p.existing {
		return id, made, err
	}
	return id, made, p.usable(ctx, conn)
}

// usable checks that the user may do what a ledger needs, before an outcome
// cannot be written down.
func (p *place) usable(ctx context.Context, conn *pgx.Conn) error {
	var may bool
	err := conn.QueryRow(ctx, `SELECT pg_catalog.bool_and(pg_catalog.has_table_privilege($1 || t, p)) FROM pg_catalog.unnest(ARRAY['.operation', '.entry']) t,
		pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p`, p.schema).Scan(&may)
	switch {
	case err != nil:
		return p.explain(err)
	case !may:
		return fmt.Errorf("%w: %s: it needs SELECT, INSERT, UPDATE and DELETE on the tables of schema %s; `mcp-idem-server doctor` says which is missing", ErrDenied, p.name, p.schemaName)
	}
	return nil
}

// Made reports whether Open found no ledger and made one.
func (s *Store) Made() bool { return s.made }

// dial connects, and tries again for a while where the server may only be
// starting.
func (p *place) dial(ctx context.Context) (*pgx.Conn, error) {
	deadline := time.Now().Add(p.patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := pgx.ConnectConfig(ctx, p.conf.ConnConfig)
		if err == nil {
			return conn, nil
		}
		if !starting(err) || time.Now().Add(pause).After(deadline) || !sleep(ctx, pause) {
			return nil, p.explain(err)
		}
	}
}

// starting reports whether a server that refuses a connection may take it soon.
func starting(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "57P03" || pg.Code == "53300")
}

func writable(ctx context.Context, conn *pgconn.PgConn) error {
	return pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn)
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 300 * time.Millisecond
)

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
