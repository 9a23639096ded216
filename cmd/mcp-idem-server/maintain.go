package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

func (p *program) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		v := programVersion()
		if p.flags.json {
			return p.printJSON(map[string]string{"version": v, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
		}
		fmt.Fprintf(p.out, "mcp-idem-server %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	}}
}

func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}

func (p *program) verify() *cobra.Command {
	return &cobra.Command{Use: "verify", Short: "Check the ledger, every row and index of it", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, at, err := p.place()
			switch {
			case err != nil:
				return err
			case at.Kind == config.LedgerPostgres:
				return p.verifyPostgres(c.Context(), at)
			case noFile(at.Path):
				return missing(at)
			}
			r, err := boltstore.VerifyRows(at.Path)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.printJSON(map[string]any{"path": r.Path, "size": r.Size, "pages": r.Pages, "pages_in_use": r.InUse, "rows": r.Rows})
			}
			fmt.Fprintf(p.out, "%s is sound: %d rows, %d of %d pages in use, %d bytes\n", r.Path, r.Rows, r.InUse, r.Pages, r.Size)
			return nil
		}}
}

func (p *program) verifyPostgres(ctx context.Context, at config.Ledger) error {
	st, err := openPostgres(ctx, at, true)
	if err != nil {
		return err
	}
	defer st.Close()
	rows, err := st.Verify(ctx)
	if err != nil {
		return err
	}
	if p.flags.json {
		return p.printJSON(map[string]any{"ledger": at, "rows": rows})
	}
	fmt.Fprintf(p.out, "%s is sound: %d rows\n", at, rows)
	return nil
}

func (p *program) compact() *cobra.Command {
	return &cobra.Command{Use: "compact", Short: "Give back the space that deleted rows left in the ledger's file", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, at, err := p.place()
			switch {
			case err != nil:
				return err
			case at.Kind == config.LedgerPostgres:
				return p.nothing(at, "there is nothing to compact: Postgres gives back space by itself (autovacuum), or with its own VACUUM")
			case noFile(at.Path):
				return missing(at)
			}
			before, after, err := boltstore.Compact(at.Path)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.printJSON(map[string]any{"path": after.Path, "size_before": before.Size, "size": after.Size})
			}
			fmt.Fprintf(p.out, "%s: %d bytes, %d before\n", after.Path, after.Size, before.Size)
			return nil
		}}
}

func (p *program) migrate() *cobra.Command {
	return &cobra.Command{Use: "migrate", Short: "Bring the schema of a ledger in Postgres to this program's version", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, at, err := p.place()
			if err != nil {
				return err
			}
			if at.Kind != config.LedgerPostgres {
				return p.nothing(at, "there is nothing to migrate: this ledger is a file, not a schema in Postgres")
			}
			from, to, err := pgstore.Migrate(c.Context(), pgstore.Config{URL: at.ConnectionURL()})
			if err != nil {
				return err
			}
			switch {
			case p.flags.json:
				return p.printJSON(map[string]any{"ledger": at, "from": from, "to": to})
			case from == to:
				fmt.Fprintf(p.out, "%s is at schema version %d already\n", at, to)
			default:
				fmt.Fprintf(p.out, "%s is at schema version %d now, %d before\n", at, to, from)
			}
			return nil
		}}
}

// nothing is what a command says that has nothing to do on this kind of ledger.
func (p *program) nothing(at config.Ledger, why string) error {
	if p.flags.json {
		return p.printJSON(map[string]any{"ledger": at, "done": false, "note": why})
	}
	fmt.Fprintf(p.out, "%s: %s\n", at, why)
	return nil
}
