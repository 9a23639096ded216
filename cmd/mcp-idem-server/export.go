package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/archive"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

// standard is the name of standard input and output.
const standard = "-"

// moved is what export and import print.
type moved struct {
	Ledger   config.Ledger `json:"ledger"`
	File     string        `json:"file,omitempty"`
	Rows     int           `json:"rows"`
	Clock    string        `json:"clock"`
	SHA256   string        `json:"sha256"`
	Verified bool          `json:"verified,omitempty"`
}

func movedOf(at config.Ledger, file string, s archive.Summary) moved {
	if file == standard {
		file = ""
	}
	return moved{Ledger: at, File: file, Rows: s.Rows, Clock: stamp(s.Clock), SHA256: s.SHA256}
}

func (p *program) export() *cobra.Command {
	var force bool
	c := &cobra.Command{Use: "export [FILE]", Short: "Write the whole ledger into a file, or to standard output",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("export takes one file, got %d arguments", len(args))
			}
			return fileNames("export", args)
		}}
	c.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	c.RunE = func(c *cobra.Command, args []string) error {
		_, at, err := p.place()
		if err != nil {
			return err
		}
		st, err := p.openAlone(c.Context(), at, opening{existing: true})
		if err != nil {
			return err
		}
		defer st.Close()
		file := standard
		if len(args) == 1 {
			file = args[0]
		}
		s, err := p.exportTo(c.Context(), st, file, force)
		if err != nil {
			return err
		}
		return p.exported(movedOf(at, file, s))
	}
	return c
}

// fileNames refuses what is surely meant to be a ledger.
func fileNames(command string, names []string) error {
	for _, name := range names {
		if name == "" || strings.Contains(name, "://") {
			return usagef("%s wants the name of a file; the ledger is named with --ledger", command)
		}
	}
	return nil
}

func (p *program) exportTo(ctx context.Context, st store, file string, force bool) (s archive.Summary, err error) {
	write := func(w io.Writer) error {
		s, err = writeArchive(ctx, st, w)
		return err
	}
	if file == standard {
		return s, write(p.out)
	}
	err = archive.Create(file, force, write)
	return s, err
}

func writeArchive(ctx context.Context, st store, w io.Writer) (archive.Summary, error) {
	a, err := archive.NewWriter(w, programVersion())
	if err != nil {
		return archive.Summary{}, err
	}
	now, err := st.Export(ctx, func(r idem.Row) error { return a.Row(&r) })
	if err != nil {
		return archive.Summary{}, err
	}
	return a.Close(now)
}

// exported says what was done; where the archive went to standard output, on
// standard error.
func (p *program) exported(m moved) error {
	switch {
	case m.File == "":
		fmt.Fprintf(p.err, "mcp-idem-server: %d rows of %s exported\n", m.Rows, m.Ledger)
	case p.flags.json:
		if err := p.printJSON(m); err != nil {
			return err
		}
	default:
		fmt.Fprintf(p.out, "%d rows of %s exported to %s\n", m.Rows, m.Ledger, m.File)
	}
	if m.Ledger.Kind == config.LedgerPostgres {
		fmt.Fprintln(p.err, "mcp-idem-server: this command cannot see the gateways on other hosts: what one of them records from now on is not in the file; if any runs, stop all and export again")
	}
	p.oneLedger()
	return nil
}

// oneLedger reminds of what nobody but the operator can see to.
func (p *program) oneLedger() {
	fmt.Fprintln(p.err, "mcp-idem-server: point every gateway at the new ledger before any is started: what is recorded in one of two ledgers can happen again")
}
