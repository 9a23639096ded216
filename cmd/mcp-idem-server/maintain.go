package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

func (p *program) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		v := "devel"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			v = info.Main.Version
		}
		if p.flags.json {
			return p.printJSON(map[string]string{"version": v, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
		}
		fmt.Fprintf(p.out, "mcp-idem-server %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	}}
}

// onFile runs f on the path of the ledger of flags and configuration.
func (p *program) onFile(f func(path string) error) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		_, path, err := p.place()
		if err != nil {
			return err
		}
		if noLedger(path) {
			return fmt.Errorf("there is no ledger at %s", path)
		}
		return f(path)
	}
}

func (p *program) verify() *cobra.Command {
	return &cobra.Command{Use: "verify", Short: "Check the ledger's file, every row and index of it", Args: noArgs,
		RunE: p.onFile(func(path string) error {
			r, err := boltstore.VerifyRows(path)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.printJSON(map[string]any{"path": r.Path, "size": r.Size, "pages": r.Pages, "pages_in_use": r.InUse, "rows": r.Rows})
			}
			fmt.Fprintf(p.out, "%s is sound: %d rows, %d of %d pages in use, %d bytes\n", r.Path, r.Rows, r.InUse, r.Pages, r.Size)
			return nil
		})}
}

func (p *program) compact() *cobra.Command {
	return &cobra.Command{Use: "compact", Short: "Give back the space that deleted rows left in the ledger's file", Args: noArgs,
		RunE: p.onFile(func(path string) error {
			before, after, err := boltstore.Compact(path)
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.printJSON(map[string]any{"path": after.Path, "size_before": before.Size, "size": after.Size})
			}
			fmt.Fprintf(p.out, "%s: %d bytes, %d before\n", after.Path, after.Size, before.Size)
			return nil
		})}
}
