package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// ledgerReport is what doctor says of the ledger. It never makes one.
type ledgerReport struct {
	Kind  config.LedgerKind `json:"kind"`
	Place config.Ledger     `json:"place"`
	State string            `json:"state"`
	// In Postgres:
	Server   string `json:"server,omitempty"` // its version
	Schema   int    `json:"schema,omitempty"` // its version; 0: there is none
	User     string `json:"user,omitempty"`
	Standby  bool   `json:"standby,omitempty"` // it is one, and so is of no use
	Standbys int    `json:"standbys,omitempty"`
	Lag      string `json:"lag,omitempty"` // of the standby that is furthest behind; a standby: since what it replayed last

	Problems []problem `json:"problems,omitempty"`
}

// problem is what stands in a gateway's way, or with Warning what does not yet.
type problem struct {
	Problem string `json:"problem"`
	Remedy  string `json:"remedy,omitempty"` // empty: the problem's text says it
	Warning bool   `json:"warning,omitempty"`
}

func (r *ledgerReport) unusable() bool {
	for _, p := range r.Problems {
		if !p.Warning {
			return true
		}
	}
	return false
}

func examineLedger(ctx context.Context, at config.Ledger) *ledgerReport {
	r := &ledgerReport{Kind: at.Kind, Place: at}
	if at.Kind == config.LedgerPostgres {
		r.postgres(ctx)
	} else {
		r.bolt()
	}
	return r
}

func (r *ledgerReport) bolt() {
	path := r.Place.Path
	if noFile(path) {
		r.State = "not there yet; the first gateway makes it"
		r.writable(existingDir(path))
		return
	}
	rep, err := boltstore.VerifyRows(path)
	switch {
	case errors.Is(err, boltstore.ErrLocked):
		r.held(err)
		return
	case errors.Is(err, os.ErrNotExist):
		r.State = "gone"
		r.Problems = append(r.Problems, problem{Problem: "the file is missing, and the marker beside it says that a ledger existed here",
			Remedy: "restore it from a backup, or start a new one (--new-ledger), which forgets every recorded effect"})
		return
	case err != nil:
		r.State = "not usable"
		r.Problems = append(r.Problems, problem{Problem: err.Error()})
		return
	}
	r.State = fmt.Sprintf("sound: %d rows, %d bytes", rep.Rows, rep.Size)
	r.writable(path, filepath.Dir(path))
}

// held looks for an answer of the process that holds the ledger.
func (r *ledgerReport) held(locked error) {
	st, err := boltstore.Dial(r.Place.Path)
	if err != nil {
		r.State = "not usable"
		r.Problems = append(r.Problems, problem{Problem: errors.Join(locked, err).Error(), Remedy: "end that process; what it recorded stays"})
		return
	}
	_ = st.Close()
	r.State = "in use by a gateway, which answers"
}

func (r *ledgerReport) writable(paths ...string) {
	for _, path := range paths {
		if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
			r.Problems = append(r.Problems, problem{Problem: fmt.Sprintf("%s cannot be written by this user: %v", path, err), Remedy: "change its owner or mode, or name another place with --ledger"})
		}
	}
}

// existingDir is the nearest directory above path that is there.
func existingDir(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

func (r *ledgerReport) postgres(ctx context.Context) {
	h, err := pgstore.Examine(ctx, pgstore.Config{URL: r.Place.ConnectionURL()})
	r.Schema, r.Server, r.User, r.Standby, r.Standbys = h.Schema, h.Server, h.User, h.Standby, h.Standbys
	if h.Lag > 0 {
		r.Lag = h.Lag.Round(time.Millisecond).String()
	}
	for _, x := range h.Problems {
		r.Problems = append(r.Problems, problem{Problem: x.What, Remedy: x.Remedy, Warning: !x.Fatal})
	}
	if err != nil {
		r.Problems = append(r.Problems, problem{Problem: err.Error()})
	}
	switch {
	case r.unusable():
		r.State = "not usable"
	case h.Schema == 0:
		r.State = "no ledger is there yet; the first gateway makes it"
	default:
		r.State = "ready"
	}
}

func (p *program) printLedger(r *ledgerReport) {
	fmt.Fprintf(p.out, "ledger %s\n  %s, %s\n", r.Place, r.Kind, r.State)
	if r.Server != "" {
		schema := "no schema"
		if r.Schema != 0 {
			schema = fmt.Sprintf("schema version %d", r.Schema)
		}
		fmt.Fprintf(p.out, "  PostgreSQL %s, %s, user %s\n", clean(r.Server), schema, clean(r.User))
	}
	switch {
	case r.Standby:
		fmt.Fprintf(p.out, "  a standby, last change replayed %s ago\n", cmp.Or(r.Lag, "an unknown time"))
	case r.Standbys > 0:
		fmt.Fprintf(p.out, "  %d standbys, %s behind at most\n", r.Standbys, cmp.Or(r.Lag, "nothing"))
	}
	for _, x := range r.Problems {
		word := "problem"
		if x.Warning {
			word = "warning"
		}
		fmt.Fprintf(p.out, "  %s: %s\n", word, clean(x.Problem))
		if x.Remedy != "" {
			fmt.Fprintf(p.out, "    %s\n", x.Remedy)
		}
	}
}
