package pgstore

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says where the ledger is and how patient the store is. Open copies it.
type Config struct {
	// URL is a PostgreSQL connection string, as libpq and pgx read it: TLS with
	// sslmode and its files, several hosts with target_session_attrs, and
	// pool_max_conns among its parameters. The password may come from the
	// environment (PGPASSWORD) or a password file. Two parameters are ours:
	// schema (default mcp_idem), and pooler=transaction, which keeps nothing on a
	// connection between two statements.
	URL string

	// Existing makes Open return ErrNoSchema where there is no ledger, rather
	// than make one.
	Existing bool

	// Patience is how long a commit or a read rides out a lost connection, a
	// restart or a failover before it gives up. 0: 5 s.
	Patience time.Duration
	// StatementTimeout bounds one statement, on both sides of the connection.
	// 0: 5 s.
	StatementTimeout time.Duration
}

const (
	defaultSchema   = "mcp_idem"
	defaultPatience = 5 * time.Second
	defaultTimeout  = 5 * time.Second
	defaultMaxConns = 8
	applicationName = "mcp-idem"
	// lockTimeout is how long a statement waits for a row: one that somebody has
	// locked must not hold up a group. Deadlocks are found before, after a second.
	lockTimeout = 2 * time.Second
)

// place is a Config that was read.
type place struct {
	conf       *pgxpool.Config
	schema     string // quoted, for statements
	schemaName string // as it is; also the channel of notifications
	name       string // for messages, without the password
	pooled     bool   // a pooler between us and the server gives each transaction another connection
	existing   bool   // no ledger is made
	patience   time.Duration
	timeout    time.Duration
	texts      sync.Map // of statements, with the schema's name
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Check reports what is wrong with the Config, without connecting.
func (c Config) Check() error {
	_, err := c.read()
	return err
}

func (c Config) read() (*place, error) {
	p := &place{existing: c.Existing, patience: c.Patience, timeout: c.StatementTimeout}
	if p.patience < 0 || p.timeout < 0 {
		return nil, fmt.Errorf("pgstore: Config.Patience and Config.StatementTimeout must not be negative")
	}
	if p.patience == 0 {
		p.patience = defaultPatience
	}
	if p.timeout == 0 {
		p.timeout = defaultTimeout
	}
	u, err := url.Parse(c.URL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, fmt.Errorf("pgstore: the ledger's URL must look like postgres://user@host:5432/database (what comes after the scheme is not shown, it may hold a password)")
	}
	q := u.Query()
	schema := defaultSchema
	if s := q.Get("schema"); s != "" {
		schema = s
	}
	if !plainName.MatchString(schema) {
		return nil, fmt.Errorf("pgstore: schema=%q: want a lower-case name of letters, digits and _", schema)
	}
	switch mode := q.Get("pooler"); mode {
	case "":
	case "transaction":
		p.pooled = true
	default:
		return nil, fmt.Errorf("pgstore: pooler=%q: want transaction, or leave it out", mode)
	}
	sizes := q.Has("pool_max_conns")
	modes := q.Has("default_query_exec_mode")
	u.RawQuery = without(u.RawQuery, "schema", "pooler")
	p.schema, p.schemaName = pgx.Identifier{schema}.Sanitize(), schema
	p.name = describe(u)
	if p.conf, err = pgxpool.ParseConfig(u.String()); err != nil {
		return nil, fmt.Errorf("pgstore: %s: the URL cannot be used: %w", p.name, err) // pgconn leaves the password out
	}
	p.defaults(sizes, modes)
	return p, nil
}

// without leaves parameters out of a query. The others stay as they are written:
// libpq and pgx take a plus sign for a plus sign, and net/url for a space.
func without(query string, names ...string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(query, "&"), func(param string) bool {
		name, _, _ := strings.Cut(param, "=")
		return slices.Contains(names, name)
	}), "&")
}

func (p *place) defaults(sizes, modes bool) {
	if !sizes {
		p.conf.MaxConns = defaultMaxConns
	}
	cc := p.conf.ConnConfig
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = p.timeout
	}
	params := cc.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = applicationName
	}
	if cc.ValidateConnect == nil { // a standby can keep no ledger
		cc.ValidateConnect = writable
	}
	cc.AfterConnect = p.pinPath
	if p.pooled {
		if !modes {
			cc.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		return
	}
	set := func(name, value string) {
		if params[name] == "" {
			params[name] = value
		}
	}
	ms := fmt.Sprint(p.timeout.Milliseconds())
	set("statement_timeout", ms)
	set("lock_timeout", fmt.Sprint(min(p.timeout, lockTimeout).Milliseconds()))
	set("idle_in_transaction_session_timeout", ms)
	// Every statement of ours reads by a key or an index, whatever the statistics
	// of a young table say, and is planned once.
	set("plan_cache_mode", "force_generic_plan")
	set("enable_seqscan", "off")
	set("jit", "off") // it takes the price of a forbidden scan for a long query
}

// describe names a place without its password.
func describe(u *url.URL) string {
	c := *u
	if c.User != nil {
		c.User = url.User(c.User.Username())
	}
	c.RawQuery = ""
	return c.String()
}

// sql puts the schema's name into a statement. There are only so many texts.
func (p *place) sql(text string) string {
	if t, ok := p.texts.Load(text); ok {
		return t.(string)
	}
	t := strings.ReplaceAll(text, "{schema}", p.schema)
	p.texts.Store(text, t)
	return t
}

// bound is ctx with the time that one statement may take.
func (p *place) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.timeout+time.Second)
}
