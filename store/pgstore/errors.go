package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Sentinels for errors.Is. The error that wraps one names the database and what
// to do about it.
var (
	// ErrNoSchema: there is no ledger in this database.
	ErrNoSchema = errors.New("pgstore: there is no ledger in this database")
	// ErrSchemaOld: the ledger's schema is older than this program.
	ErrSchemaOld = errors.New("pgstore: the ledger's schema is older than this program")
	// ErrSchemaNew: the ledger's schema is newer than this program.
	ErrSchemaNew = errors.New("pgstore: the ledger's schema is newer than this program")
	// ErrGone: what was this ledger is gone, or another one is in its place.
	ErrGone = errors.New("pgstore: the ledger is gone")
	// ErrReadOnly: the server takes no writes: a standby, or read-only by setting.
	ErrReadOnly = errors.New("pgstore: the database is read-only")
	// ErrFull: the server has no space. Nothing was changed.
	ErrFull = errors.New("pgstore: no space left for the ledger")
	// ErrDenied: the user may not do what a ledger needs.
	ErrDenied = errors.New("pgstore: the database user lacks a privilege")
	// ErrUnreachable: no connection could be had, or none that lasted.
	ErrUnreachable = errors.New("pgstore: the database cannot be reached")
	// ErrDamaged: a row is not what was written.
	ErrDamaged = errors.New("pgstore: ledger is damaged")
)

// fate is what is known of a statement that failed.
type fate uint8

const (
	refused   fate = iota // not applied, and trying again is of no use
	again                 // not applied; another try may do
	elsewhere             // not applied; another connection may do
	unknown               // applied or not
)

// lostRace are the constraints that break when another transaction was faster
// with the same row. Their names are no other table's.
var lostRace = map[string]bool{
	"mcp_idem_operation_key": true, "mcp_idem_operation_lost_race": true,
	"mcp_idem_entry_key": true, "mcp_idem_entry_lost_race": true,
}

// judge says what became of a statement that ended with err. It is the only
// place that reads error codes (PostgreSQL, Appendix A).
func judge(err error) fate {
	if ours(err) {
		return refused
	}
	// pgconn.SafeToRetry is not asked: pgx 5.12 says it also of a simple query
	// whose answer was lost.
	if errors.Is(err, errNoConnection) || errors.As(err, new(*pgconn.ConnectError)) {
		return elsewhere
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return unknown
	}
	// The connection ends with a fatal error, and it can come while the server
	// waits for its standbys, when the commit is done already. Poolers give only
	// one of the two severities.
	if severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity); severity == "FATAL" || severity == "PANIC" {
		return unknown
	}
	switch pg.Code {
	case "40003": // statement completion unknown
		return unknown
	case "40001", "40P01", "55P03", "57014": // serialization, deadlock, lock or statement timeout
		return again
	case "23505", "23514":
		if lostRace[pg.ConstraintName] {
			return again
		}
	case "0A000", "26000", "42P05": // a prepared statement that a change of schema or a pooler took away
		return again
	case "25006": // the primary has become a standby
		return elsewhere
	}
	switch pg.Code[:2] {
	case "08": // the connection, after the statement left
		return unknown
	case "53", "57", "58": // resources, intervention, system
		if pg.Code == "53100" { // disk full
			return refused
		}
		return elsewhere
	}
	return refused
}

// errPath: search_path is not to be trusted.
var errPath = errors.New("pgstore: search_path does not begin with pg_catalog")

// readOnly reports that the server takes no writes any more.
func readOnly(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "25006"
}

// stuck reports that a statement waited too long, for a row that somebody has
// locked or for the server.
func stuck(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55P03" || pg.Code == "57014")
}

// rerun reports what a database asks to be done again in a new transaction.
func rerun(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// errNoConnection: the pool had none to give, so nothing was sent.
var errNoConnection = errors.New("no connection")

// ours reports an error that this package made of something it found.
func ours(err error) bool {
	for _, e := range []error{ErrNoSchema, ErrSchemaOld, ErrSchemaNew, ErrGone, errPath, codec.ErrMalformed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

const primaryRemedy = "name the primary, or all servers with target_session_attrs=read-write"

// explain gives an error its sentinel, its place and a remedy.
func (p *place) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	say := func(sentinel error, remedy string) error {
		if errors.Is(err, sentinel) {
			return err
		}
		return fmt.Errorf("%w: %s: %s: %w", sentinel, p.name, remedy, err)
	}
	if errors.Is(err, codec.ErrMalformed) {
		return say(ErrDamaged, "restore it from a backup")
	}
	if ours(err) {
		return err
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return say(ErrReadOnly, primaryRemedy)
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if judge(err) == elsewhere || errors.Is(err, context.DeadlineExceeded) {
			return say(ErrUnreachable, "is the server running, and do host, port and TLS settings fit?")
		}
		return fmt.Errorf("pgstore: %s: %w", p.name, err)
	}
	switch pg.Code {
	case "53100":
		return say(ErrFull, "free some space on the server")
	case "53300":
		return say(ErrUnreachable, "the server has no connection left: raise max_connections or lower pool_max_conns")
	case "25006":
		return say(ErrReadOnly, primaryRemedy)
	case "42501":
		return say(ErrDenied, "grant it, or let an owner run `mcp-idem-server migrate` once")
	case "42P01", "3F000":
		return say(ErrGone, "its tables were dropped while it was in use")
	case "3D000":
		return say(ErrUnreachable, "create the database first")
	case "26000", "42P05", "08P01": // 08P01: PgBouncer takes none of our settings
		return say(ErrUnreachable, "if a pooler stands before the server, add pooler=transaction to the URL")
	}
	if strings.HasPrefix(pg.Code, "28") {
		return say(ErrUnreachable, "the server does not accept this user or password")
	}
	if f := judge(err); f == elsewhere || f == unknown {
		return say(ErrUnreachable, "the server ended the connection")
	}
	return fmt.Errorf("pgstore: %s: %w", p.name, err)
}

// dropped reports whether the tables, or their schema, are not there.
func dropped(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42P01" || pg.Code == "3F000")
}
