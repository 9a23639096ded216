package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/mcp"
	"github.com/mcp-idem/mcp-idem/policy"
)

// doctorWait bounds how long the upstream may take to list its tools.
const doctorWait = 30 * time.Second

// toolReport is what doctor says of one tool.
type toolReport struct {
	Tool      string `json:"tool"`
	Policy    string `json:"policy"`
	Effect    string `json:"effect"`
	Guarantee string `json:"guarantee"`
}

type report struct {
	Ledger   *ledgerReport `json:"ledger"`
	Tools    []toolReport  `json:"tools"`
	Warnings []string      `json:"warnings,omitempty"`
}

func (p *program) doctor() *cobra.Command {
	c := &cobra.Command{Use: "doctor [-- COMMAND [ARGS…]]", Short: "Check the ledger, and explain which policy applies to each tool of the upstream and what that guarantees",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := p.doctorConfig(c, args)
			if err != nil {
				return err
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

// examine starts the upstream and goes through its tools.
func (p *program) examine(ctx context.Context, cfg *config.Config, r *report) error {
	log, err := p.logger()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	for _, u := range cfg.Upstreams {
		up := mcp.NewUpstream(mcp.Server{Name: u.Name, Command: u.Command, Args: u.Args, Env: u.Env, Dir: u.Dir, ClientWait: -1, Log: log})
		set, err := cfg.Set(func(ctx context.Context, _, tool string, args []byte) ([]byte, error) {
			return up.Call(ctx, tool, args)
		})
		if err != nil {
			return err
		}
		tools, err := up.Tools(ctx)
		up.Close()
		if err != nil {
			return err
		}
		r.add(u.Name, set, tools)
	}
	if cfg.File == "" && p.flags.name == "" {
		r.Warnings = append(r.Warnings, "no --name is given: the operations belong to this command with these arguments in this directory, and another start knows nothing of them")
	}
	if p.flags.task == "" {
		r.Warnings = append(r.Warnings, "no --task is given: unless the client names its task (Claude Code and Codex do), a call without a step or key cannot be found again after a restart")
	}
	return nil
}

func (r *report) add(server string, set *policy.Set, tools []*mcp.ToolInfo) {
	var names []string
	for _, t := range tools {
		set.Hint(server, t.Name, t.ReadOnly)
		full := server + "/" + t.Name
		names = append(names, full)
		entry := set.Tool(full)
		tr := toolReport{Tool: full, Policy: entry.Match, Effect: string(set.Effect(full))}
		tr.Guarantee = guarantee(set, full)
		r.Tools = append(r.Tools, tr)
		if a := entry.Forward.Argument; a != "" && !t.Takes(a) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: forward.argument %q does not fit the tool's schema (additionalProperties is false)", full, a))
		}
		if rules, _ := set.Rules(full); tr.Effect == string(policy.EffectWrite) && rules.Query == nil {
			r.Warnings = append(r.Warnings, full+" has no reconcile: an outcome that is not known waits for a person")
		}
		if q := entry.QueryTool(); q != "" {
			r.Warnings = append(r.Warnings, queryWarnings(server, set, tools, full, q)...)
		}
	}
	for _, i := range set.Unmatched(names) {
		match := set.Entry(i).Match
		if slices.ContainsFunc(names, func(n string) bool { return policy.Matches(match, n) }) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("policies[%d] (%s) is never reached: an earlier entry matches its tools first", i, match))
			continue
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("policies[%d] (%s) matches no tool; the upstream has %s", i, match, strings.Join(names, ", ")))
	}
	slices.SortFunc(r.Tools, func(a, b toolReport) int { return strings.Compare(a.Tool, b.Tool) })
}

// queryWarnings are about the tool that a reconcile asks with.
func queryWarnings(server string, set *policy.Set, tools []*mcp.ToolInfo, full, query string) []string {
	if !slices.ContainsFunc(tools, func(t *mcp.ToolInfo) bool { return t.Name == query }) {
		return []string{fmt.Sprintf("%s: reconcile.tool %q is not one of the upstream's tools: nothing can be settled by it", full, query)}
	}
	if set.Effect(server+"/"+query) != policy.EffectRead {
		return []string{fmt.Sprintf("%s: reconcile.tool %q is not declared effect: read; a query must not change anything", full, query)}
	}
	return nil
}

func guarantee(set *policy.Set, tool string) string {
	rules, _ := set.Rules(tool)
	switch {
	case set.Effect(tool) == policy.EffectRead:
		return "not guarded: a read"
	case rules.Query != nil && rules.Query.Baseline:
		return "unknown outcomes are settled by a query against a baseline"
	case rules.Query != nil:
		return "unknown outcomes are settled by a query"
	case rules.Resend:
		return "unknown outcomes are sent again: the policy calls the tool idempotent"
	}
	return "at most once; an unknown outcome waits for a person"
}

func (p *program) printReport(r report) error {
	if p.flags.json {
		return p.printJSON(r)
	}
	p.printLedger(r.Ledger)
	for _, t := range r.Tools {
		match := t.Policy
		if match == "**" {
			match = "(defaults)"
		}
		fmt.Fprintf(p.out, "%s\n  policy %s, effect %s\n  %s\n", t.Tool, match, t.Effect, t.Guarantee)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(p.out, "warning: %s\n", w)
	}
	return nil
}
