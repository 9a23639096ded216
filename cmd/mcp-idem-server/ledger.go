package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// ledgerPlace is where the ledger is: flag, else configuration, else the
// default. A URL that cannot work is a mistake of usage.
func (p *program) ledgerPlace(fromConfig config.Ledger) (config.Ledger, error) {
	at, err := p.namedLedger(fromConfig)
	if err == nil && at.Kind == config.LedgerPostgres {
		if err := (pgstore.Config{URL: at.ConnectionURL()}).Check(); err != nil {
			return at, usageError{err}
		}
	}
	return at, err
}

func (p *program) namedLedger(fromConfig config.Ledger) (config.Ledger, error) {
	switch {
	case p.flags.ledger != "":
		from := "--ledger"
		if p.flags.ledger == p.getenv("MCP_IDEM_LEDGER") {
			from = "MCP_IDEM_LEDGER"
		}
		return config.ParseLedger(from, p.flags.ledger)
	case fromConfig != config.Ledger{}:
		return fromConfig, nil
	}
	dir := p.getenv("XDG_STATE_HOME")
	if dir == "" {
		home := p.getenv("HOME")
		if home == "" {
			return config.Ledger{}, usagef("no ledger is named, and neither XDG_STATE_HOME nor HOME is set: use --ledger bolt:///path")
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return config.BoltAt(filepath.Join(dir, "mcp-idem", "ledger.db")), nil
}

// store is what this program needs of a ledger's store.
type store interface {
	idem.Store
	Export(ctx context.Context, yield func(idem.Row) error) (now idem.Instant, err error)
	Import(ctx context.Context, now idem.Instant, rows iter.Seq2[idem.Row, error]) (n int, err error)
}

// opening says what a ledger is opened for.
type opening struct {
	file     boltstore.Config // how, where it is a file
	existing bool             // a command that only reads must not make a ledger
}

// openStore opens a ledger, wherever it is.
func (p *program) openStore(ctx context.Context, at config.Ledger, how opening) (st store, err error) {
	switch at.Kind {
	case config.LedgerPostgres:
		st, err = openPostgres(ctx, at, how.existing)
	default:
		if how.existing && noFile(at.Path) {
			return nil, missing(at)
		}
		how.file.Path, how.file.NewLedger = at.Path, p.flags.newLedger
		st, err = boltstore.Open(how.file)
	}
	if err != nil {
		return nil, err // and no store that is nil and does not look so
	}
	return st, nil
}

// joinStore opens the ledger for a gateway. Several gateways of one user share a
// file: one of them holds it and serves the others.
func (p *program) joinStore(ctx context.Context, at config.Ledger, lease time.Duration) (idem.Store, error) {
	if at.Kind == config.LedgerPostgres {
		return p.openStore(ctx, at, opening{})
	}
	st, err := boltstore.Join(boltstore.Config{Path: at.Path, NewLedger: p.flags.newLedger, LeaseGrace: lease})
	if err != nil {
		return nil, err
	}
	return st, nil
}

func openPostgres(ctx context.Context, at config.Ledger, existing bool) (*pgstore.Store, error) {
	st, err := pgstore.Open(ctx, pgstore.Config{URL: at.ConnectionURL(), Existing: existing})
	if errors.Is(err, pgstore.ErrNoSchema) {
		return nil, missing(at)
	}
	return st, err
}

// openShared opens the ledger for a command that works beside a gateway: the
// file itself, or through the process that holds it. held says that a gateway
// runs on it; of one in Postgres nobody can say. It makes no ledger: errNoLedger.
// lease is how long gateways hold theirs: one may live on whose claims were in the
// memory of a holder that has just ended.
func (p *program) openShared(ctx context.Context, at config.Ledger, lease time.Duration) (st idem.Store, held bool, err error) {
	if at.Kind == config.LedgerPostgres {
		st, err = p.openStore(ctx, at, opening{existing: true})
		return st, false, err
	}
	if noFile(at.Path) {
		return nil, false, missing(at)
	}
	shared, err := boltstore.Join(boltstore.Config{Path: at.Path, NewLedger: p.flags.newLedger, LeaseGrace: lease})
	if err != nil {
		return nil, false, err
	}
	return shared, !shared.Holds(), nil
}

// openAlone opens the ledger for a command that must be the only one on it. In
// Postgres it is for the operator to see to that.
func (p *program) openAlone(ctx context.Context, at config.Ledger, how opening) (store, error) {
	how.file.NoSocket = true
	st, err := p.openStore(ctx, at, how)
	if errors.Is(err, boltstore.ErrLocked) {
		err = fmt.Errorf("stop the gateway first: what it records meanwhile would be in one of two ledgers only, and could happen again: %w", err)
	}
	return st, err
}

var errNoLedger = errors.New("there is no ledger")

func missing(at config.Ledger) error { return fmt.Errorf("%w at %s", errNoLedger, at) }

// noFile reports whether there is no file to open, and never was one.
func noFile(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist) && !boltstore.Existed(path)
}

// shell quotes a word for a command that people copy.
func shell(word string) string {
	if strings.ContainsAny(word, " ?&*;$'\"\\") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

var password = regexp.MustCompile(`(://[^\s/?#@:"']*):[^\s"']*@`)

// scrub takes passwords of URLs out of a message, which may repeat arguments
// that were in the wrong place.
func scrub(text string) string { return password.ReplaceAllString(text, "$1:xxxxx@") }
