package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
)

// flags are those that every command knows.
type flags struct {
	config, ledger, tenant, task, run, logLevel string
	json, newLedger                             bool
	name                                        string // -- mode
	trustHints                                  bool   // -- mode
	noControlTools                              bool
}

func isUsage(err error) bool {
	return errors.As(err, new(usageError)) || errors.As(err, new(*config.Error))
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "mcp-idem-server [flags] -- COMMAND [ARGS…]",
		Short: "Guards MCP servers: the side effects of their tools happen once",
		Long: `mcp-idem-server stands between an MCP client and an MCP server, and makes the
side effects of the server's tools happen once, however often they are asked for.

  mcp-idem-server -- COMMAND [ARGS…]   guard one server, speak stdio
  mcp-idem-server --config FILE        guard the server of FILE, speak stdio
  mcp-idem-server demo                 show a crash in the dangerous window`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: p.gateway,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("ledger") && p.flags.ledger == "" { // a variable that is not set
				return usagef("--ledger is empty: name a ledger, or leave the flag out for the default one")
			}
			_, err := p.logger()
			return err
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&p.flags.config, "config", p.getenv("MCP_IDEM_CONFIG"), "configuration file ($MCP_IDEM_CONFIG)")
	f.StringVar(&p.flags.ledger, "ledger", p.getenv("MCP_IDEM_LEDGER"), "ledger: a path, bolt:///path or postgres://user@host/database ($MCP_IDEM_LEDGER)")
	f.Lookup("ledger").DefValue = "" // help shows it, and it may hold a password
	f.StringVar(&p.flags.tenant, "tenant", p.getenv("MCP_IDEM_TENANT"), "tenant ($MCP_IDEM_TENANT)")
	f.StringVar(&p.flags.task, "task", p.getenv("MCP_IDEM_TASK"), "task of asks that name none ($MCP_IDEM_TASK)")
	f.StringVar(&p.flags.run, "run", p.getenv("MCP_IDEM_RUN"), "run of the agent ($MCP_IDEM_RUN)")
	f.StringVar(&p.flags.logLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&p.flags.json, "json", false, "print JSON")
	f.BoolVar(&p.flags.newLedger, "new-ledger", false, "begin a new ledger where one is missing or empty")
	p.commandFlags(root)
	p.gatewayFlags(root)
	root.AddCommand(p.serve(), p.ops(), p.stats(), p.doctor(), p.verify(), p.compact(), p.migrate(), p.export(), p.importCommand(), p.schema(), p.init(), p.version(), p.demo(), ticketsCommand(p))
	root.AddCommand(notBuilt()...)
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "Help about a command", Run: func(c *cobra.Command, args []string) {
		if found, _, err := root.Find(args); err == nil {
			_ = found.Help()
		}
	}})
	return root
}

// commandFlags are for commands that take a server after --.
func (p *program) commandFlags(c *cobra.Command) {
	c.Flags().StringVar(&p.flags.name, "name", "", "name of the server behind -- (default: from the command)")
	c.Flags().BoolVar(&p.flags.trustHints, "trust-hints", false, "believe the readOnlyHint of the server behind --")
}

// gatewayFlags are for commands that serve clients.
func (p *program) gatewayFlags(c *cobra.Command) {
	c.Flags().BoolVar(&p.flags.noControlTools, "no-control-tools", false, "do not offer the idem_ tools to agents")
}

func (p *program) getenv(name string) string {
	v, _ := p.env(name)
	return v
}

// notBuilt are commands that this version knows by name only: refused, never
// ignored.
func notBuilt() []*cobra.Command {
	var cs []*cobra.Command
	for _, name := range []string{"tasks"} {
		cs = append(cs, &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
			return usagef("%s is not supported yet by this version", name)
		}})
	}
	return cs
}

// commandName is the command without the program's name.
func commandName(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

// noArgs refuses arguments as a mistake of usage.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", commandName(c), args)
	}
	return nil
}

// group is a command that only has subcommands.
func group(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		var names []string
		for _, s := range c.Commands() {
			if !s.Hidden {
				names = append(names, s.Name())
			}
		}
		if len(args) == 0 {
			return usagef("%s needs a subcommand: %s", commandName(c), strings.Join(names, ", "))
		}
		return usagef("%s: unknown subcommand %q, want one of %s", commandName(c), args[0], strings.Join(names, ", "))
	}
	return c
}

func (p *program) demo() *cobra.Command {
	return &cobra.Command{Use: "demo", Short: "Show a crash in the dangerous window, with and without the guard", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			return demo.Run(c.Context(), p.out, self)
		}}
}

func ticketsCommand(p *program) *cobra.Command {
	return &cobra.Command{Use: "__tickets", Hidden: true, DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
		if demo.TicketsMain(args, p.err) != 0 {
			return errReported
		}
		return nil
	}}
}
