package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/mcp"
)

// doctorWait bounds how long the upstreams may take to list their tools.
const doctorWait = 30 * time.Second

type report struct {
	Ledger   *ledgerReport `json:"ledger"`
	Task     *taskReport   `json:"task,omitempty"`
	HTTP     *httpReport   `json:"http,omitempty"`
	Tools    []toolReport  `json:"tools"`
	Warnings []string      `json:"warnings,omitempty"`
}

func (r *report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (p *program) doctor() *cobra.Command {
	var suggest bool
	c := &cobra.Command{Use: "doctor [-- COMMAND [ARGS…]]", Short: "Check the ledger, and explain which policy applies to each tool of the upstreams and what that guarantees",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := p.doctorConfig(c, args)
			if err != nil {
				return err
			}
			if suggest {
				return p.suggest(c.Context(), cfg)
			}
			var named config.Ledger
			if cfg != nil {
				named = cfg.Ledger
			}
			at, err := p.ledgerPlace(named)
			if err != nil {
				return err
			}
			r := report{Ledger: examineLedger(c.Context(), at), Tools: []toolReport{}}
			if cfg != nil {
				err = p.examine(c.Context(), cfg, &r)
			}
			if perr := p.printReport(r); perr != nil || err != nil {
				return errors.Join(err, perr)
			}
			if r.Ledger.unusable() {
				return errors.New("a gateway cannot use this ledger: see its problems")
			}
			return nil
		}}
	c.Flags().BoolVar(&suggest, "suggest", false, "print policies for the tools that have none, for a person to accept")
	p.commandFlags(c)
	return c
}

// doctorConfig is nil where only the ledger is to be looked at.
func (p *program) doctorConfig(c *cobra.Command, args []string) (*config.Config, error) {
	switch dash := c.ArgsLenAtDash(); {
	case dash == 0 && len(args) > 0:
		return p.commandConfig(args)
	case len(args) > 0:
		return nil, usagef("doctor takes --config FILE, or a command after --")
	case p.flags.config == "" && p.flags.ledger != "":
		return nil, nil
	case p.flags.config == "":
		return nil, usagef("doctor needs --config FILE, or a command after --; or --ledger, for the ledger alone")
	}
	cfg, err := p.loadConfig()
	if err == nil && len(cfg.Upstreams) == 0 {
		err = usagef("%s: mcpServers names no server to guard", cfg.File)
	}
	return cfg, err
}

// examine starts the upstreams and goes through their tools.
func (p *program) examine(ctx context.Context, cfg *config.Config, r *report) error {
	r.Task, r.HTTP = p.examineTask(cfg, r), examineHTTP(cfg, r)
	set, err := cfg.Set(nil)
	if err != nil {
		return err
	}
	lists, err := p.list(ctx, cfg)
	t := toolsReport{report: r, cfg: cfg, set: set}
	for i := range cfg.Upstreams {
		t.add(&cfg.Upstreams[i], lists[i])
	}
	t.conclude(err == nil)
	if cfg.File == "" && p.flags.name == "" {
		r.warn("no --name is given: the operations belong to this command with these arguments in this directory, and another start knows nothing of them")
	}
	return err
}

// list asks every upstream for its tools. The lists of those that answered are
// there beside an error of others.
func (p *program) list(ctx context.Context, cfg *config.Config) ([][]*mcp.ToolInfo, error) {
	log, err := p.logger()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	lists, errs := make([][]*mcp.ToolInfo, len(cfg.Upstreams)), make([]error, len(cfg.Upstreams))
	var wg sync.WaitGroup
	for i, srv := range servers(cfg, log) {
		wg.Go(func() {
			srv.ClientWait = -1
			up := mcp.NewUpstream(srv)
			defer up.Close()
			lists[i], errs[i] = up.Tools(ctx)
		})
	}
	wg.Wait()
	return lists, errors.Join(errs...)
}

func (p *program) printReport(r report) error {
	if p.flags.json {
		return p.printJSON(r)
	}
	p.printLedger(r.Ledger)
	if r.Task != nil {
		r.Task.print(p.out)
	}
	if r.HTTP != nil {
		r.HTTP.print(p.out)
	}
	for _, t := range r.Tools {
		t.print(p.out)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(p.out, "warning: %s\n", clean(w))
	}
	return nil
}
