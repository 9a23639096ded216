package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/archive"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

func (p *program) importCommand() *cobra.Command {
	c := &cobra.Command{Use: "import FILE", Short: "Fill an empty ledger with what export wrote, and compare it row by row",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("import wants one file that export wrote, or - for standard input, got %d arguments", len(args))
			}
			return fileNames("import", args)
		}}
	c.RunE = func(c *cobra.Command, args []string) error {
		_, at, err := p.place()
		if err != nil {
			return err
		}
		f, err := p.archiveFile(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		// The whole file is read before the ledger is touched.
		s, err := archive.Check(again(f))
		if err != nil {
			return of(args[0], err)
		}
		st, err := p.openAlone(c.Context(), at, opening{file: boltstore.Config{ForImport: true}})
		if err != nil {
			return err
		}
		defer st.Close()
		if err := importFrom(c.Context(), st, f, s); err != nil {
			return of(args[0], err)
		}
		if err := verifyImport(c.Context(), st, f, s); err != nil {
			return fmt.Errorf("%s was filled, but it is not what the file says; do not use it: %w", at, of(args[0], err))
		}
		m := movedOf(at, args[0], s)
		if m.Verified = true; p.flags.json {
			err = p.printJSON(m)
		} else {
			_, err = fmt.Fprintf(p.out, "%d rows imported and verified: %s\n", m.Rows, at)
		}
		p.oneLedger()
		return err
	}
	return c
}

// archiveFile opens what can be read three times.
func (p *program) archiveFile(name string) (*os.File, error) {
	if name == standard {
		return archive.Spool(p.in)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usageError{err}
	}
	if info, err := f.Stat(); err != nil || info.Mode().IsRegular() {
		return f, err
	}
	defer f.Close()
	return archive.Spool(f)
}

// of gives the mistakes in a file the file's name.
func of(name string, err error) error {
	if !errors.As(err, new(*archive.Error)) {
		return err
	}
	if name == standard {
		name = "standard input"
	}
	return fmt.Errorf("%s: %w", name, err)
}

func again(f *os.File) io.Reader { return io.NewSectionReader(f, 0, 1<<62) }

func importFrom(ctx context.Context, st store, f *os.File, s archive.Summary) error {
	n, err := st.Import(ctx, s.Clock, archive.NewReader(again(f)).Rows())
	if err == nil && n != s.Rows {
		err = fmt.Errorf("%d rows were imported, the file has %d", n, s.Rows)
	}
	return err
}

// verifyImport reads the ledger back beside the file.
func verifyImport(ctx context.Context, st store, f *os.File, s archive.Summary) error {
	want, stop := iter.Pull2(archive.NewReader(again(f)).Rows())
	defer stop()
	now, err := st.Export(ctx, func(got idem.Row) error {
		row, err, more := want()
		if err == nil && !more {
			err = fmt.Errorf("row %d/%s is not in the file", got.Ref.Kind, got.Ref.ID)
		}
		if err == nil {
			err = same(&got, &row)
		}
		return err
	})
	if err != nil {
		return err
	}
	switch row, err, more := want(); {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("row %d/%s is not in the ledger", row.Ref.Kind, row.Ref.ID)
	}
	if now < s.Clock {
		return fmt.Errorf("its clock is at %s, before the file's, %s", stamp(now), stamp(s.Clock))
	}
	return nil
}

// same compares two rows by what is stored of them.
func same(got, want *idem.Row) error {
	a, aerr := codec.Body(got)
	b, berr := codec.Body(want)
	if err := errors.Join(aerr, berr); err != nil {
		return err
	}
	if got.Ref != want.Ref || got.Version != want.Version || !bytes.Equal(a, b) {
		return fmt.Errorf("row %d/%s at version %d is not row %d/%s at version %d of the file",
			got.Ref.Kind, got.Ref.ID, got.Version, want.Ref.Kind, want.Ref.ID, want.Version)
	}
	return nil
}
