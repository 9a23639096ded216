package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

func (p *program) ops() *cobra.Command {
	ops := group(&cobra.Command{Use: "ops", Short: "List, show and decide operations"})
	ops.AddCommand(p.opsList(), p.opsShow(), p.opsResolve(), p.opsGrant(), p.opsReconcile())
	for _, name := range []string{"approve", "deny"} {
		ops.AddCommand(&cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
			return usagef("ops %s is not supported yet by this version", name)
		}})
	}
	return ops
}

// place is the configuration of a command that can do without, and the place of
// its ledger.
func (p *program) place() (*loaded, config.Ledger, error) {
	cfg, err := p.optionalConfig()
	if err != nil {
		return nil, config.Ledger{}, err
	}
	var named config.Ledger
	if cfg != nil {
		named = cfg.Ledger
	}
	at, err := p.ledgerPlace(named)
	return cfg, at, err
}

// withLedger runs f on the ledger; a command that finds none has nothing to do.
func (p *program) withLedger(ctx context.Context, f func(ctx context.Context, l *opened) error) error {
	cfg, at, err := p.place()
	if err != nil {
		return err
	}
	lease := config.DefaultLease
	if cfg != nil {
		lease = cfg.Lease
	}
	st, held, err := p.openShared(ctx, at, lease)
	if errors.Is(err, errNoLedger) && p.flags.ledger == "" && (cfg == nil || cfg.Ledger == config.Ledger{}) {
		fmt.Fprintf(p.err, "mcp-idem-server: %v yet\n", err)
		return f(ctx, &opened{cfg: cfg})
	}
	if err != nil {
		return err
	}
	defer st.Close()
	return f(ctx, &opened{Store: st, held: held, cfg: cfg})
}

func (p *program) opsList() *cobra.Command {
	var state, task string
	var all bool
	c := &cobra.Command{Use: "list [--state S] [--task T] [--all]", Short: "List operations", Args: noArgs}
	c.Flags().StringVar(&state, "state", "", "only in this state")
	c.Flags().StringVar(&task, "task", "", "only of this task")
	c.Flags().BoolVar(&all, "all", false, "also records that have expired")
	c.RunE = func(c *cobra.Command, _ []string) error {
		want := idem.State(state)
		if state != "" && !known(want) {
			return usagef("ops list: --state %s: want one of %v", state, idem.States())
		}
		return p.withLedger(c.Context(), func(ctx context.Context, l *opened) error {
			rows := []row{}
			err := l.each(ctx, func(r *idem.Record, now idem.Instant) error {
				shown := r.Shown(now)
				if (r.Expired && !all) || (state != "" && shown != want) || (task != "" && r.Task != task) ||
					(p.flags.tenant != "" && r.Scope.Tenant != p.flags.tenant) {
					return nil
				}
				rows = append(rows, rowOf(r, now))
				return nil
			})
			if err != nil {
				return err
			}
			slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.created, b.created) })
			return p.printRows(rows)
		})
	}
	return c
}

func known(s idem.State) bool {
	for _, k := range idem.States() {
		if k == s {
			return true
		}
	}
	return false
}

func (p *program) printRows(rows []row) error {
	if p.flags.json {
		return p.printJSON(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(p.out, "no operations")
		return nil
	}
	several := slices.ContainsFunc(rows, func(r row) bool { return r.Tenant != rows[0].Tenant })
	tenant := func(name string) string {
		if !several {
			return ""
		}
		return short(name) + "\t"
	}
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "OP\tSTATE\t"+tenant("TENANT")+"TOOL\tTASK\tSTEP\tATTEMPT\tUPDATED\tNOTE")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s%s\t%s\t%s\t%d\t%s\t%s\n", r.Op, r.State, tenant(r.Tenant), short(r.Tool), short(r.Task), short(r.Step), r.Attempt, r.UpdatedAt, short(r.note()))
	}
	return w.Flush()
}

func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p *program) opsShow() *cobra.Command {
	return &cobra.Command{Use: "show OP", Short: "Show one operation with its attempts and decisions", Args: oneOp,
		RunE: func(c *cobra.Command, args []string) error {
			return p.withLedger(c.Context(), func(ctx context.Context, l *opened) error {
				r, now, err := l.record(ctx, args[0])
				if err != nil {
					return err
				}
				return p.printDetail(r, now)
			})
		}}
}

func oneOp(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("ops %s wants one operation (as mcp-idem/op and ops list show it), got %d arguments", c.Name(), len(args))
	}
	if _, ok := idem.ParseID(args[0]); !ok {
		return usagef("%q is not the id of an operation: want 32 characters as ops list shows them", args[0])
	}
	return nil
}

func (p *program) opsResolve() *cobra.Command {
	var d decision
	var file string
	c := &cobra.Command{Use: "resolve OP --as committed|not-applied|compensated --reason TEXT", Short: "Decide the outcome of an operation", Args: oneOp}
	c.Flags().StringVar(&d.Verb, "as", "", "committed, not-applied or compensated")
	c.Flags().StringVar(&d.ExternalID, "external-id", "", "id of the object outside, with --as committed")
	c.Flags().StringVar(&file, "result", "", "file with the CallToolResult that replays return, with --as committed")
	d.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch d.Verb {
		case idem.VerbCommitted, idem.VerbNotApplied, idem.VerbCompensated:
		default:
			return usagef("ops resolve: --as %q: want committed, not-applied or compensated", d.Verb)
		}
		if d.Verb != idem.VerbCommitted && (d.ExternalID != "" || file != "") {
			return usagef("ops resolve: --external-id and --result go with --as committed")
		}
		if file != "" {
			var err error
			if d.Result, err = readResult(file); err != nil {
				return err
			}
		}
		return p.decide(c, args[0], &d)
	}
	return c
}

func (p *program) opsGrant() *cobra.Command {
	d := decision{Command: idem.Command{Verb: idem.VerbGrantRetry}}
	c := &cobra.Command{Use: "grant-retry OP --reason TEXT", Short: "Let the next ask make one more attempt", Args: oneOp}
	d.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error { return p.decide(c, args[0], &d) }
	return c
}

// decision is what a person decides about an operation.
type decision struct {
	idem.Command
	version uint64
}

func (d *decision) flags(c *cobra.Command) {
	c.Flags().StringVar(&d.Reason, "reason", "", "why; kept in the operation's history")
	c.Flags().Uint64Var(&d.version, "version", 0, "the version that the decision is based on")
	c.Flags().StringVar(&d.ID, "command-id", "", "decides once, however often it is given")
}

func (p *program) decide(c *cobra.Command, op string, d *decision) error {
	if d.Reason == "" {
		return usagef("%s: --reason is missing", commandName(c))
	}
	d.Op, _ = idem.ParseID(op)
	d.Saw = idem.Version(d.version)
	return p.withLedger(c.Context(), func(ctx context.Context, l *opened) error {
		if l.Store == nil {
			return fmt.Errorf("%s: %w", d.Op, idem.ErrNoOperation)
		}
		r, err := l.operator().Decide(ctx, d.Command)
		if err != nil {
			return err
		}
		return p.printOne(ctx, l, r)
	})
}

// readResult reads a CallToolResult: a JSON object with a content array.
func readResult(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError{err}
	}
	var r struct {
		Content []json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, usagef("%s: not a CallToolResult: %w", file, err)
	}
	if r.Content == nil {
		return nil, usagef("%s: not a CallToolResult: it has no content array", file)
	}
	return b, nil
}

func (p *program) printOne(ctx context.Context, l *opened, r *idem.Record) error {
	now, err := l.Clock(ctx)
	if err != nil {
		return err
	}
	if p.flags.json {
		return p.printJSON(rowOf(r, now))
	}
	fmt.Fprintf(p.out, "%s is %s (version %d)\n", r.Op, r.Shown(now), r.Version)
	return nil
}

// opened is the ledger of a command. Store is nil where there is none.
type opened struct {
	idem.Store
	held bool // by a gateway, which answers for it
	cfg  *loaded
}

func (l *opened) operator() idem.Operator {
	o := idem.Operator{Store: l.Store}
	if l.cfg != nil {
		o.Policy = l.cfg.Set
	}
	return o
}

func (l *opened) each(ctx context.Context, f func(*idem.Record, idem.Instant) error) error {
	if l.Store == nil {
		return nil
	}
	q := idem.Query{Order: idem.ByID, Limit: 256}
	for {
		page, err := l.List(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			if err := f(r, page.Now); err != nil {
				return err
			}
		}
		if page.Next == nil {
			return nil
		}
		q.After = page.Next
	}
}

func (l *opened) record(ctx context.Context, op string) (*idem.Record, idem.Instant, error) {
	id, ok := idem.ParseID(op)
	if !ok || l.Store == nil {
		return nil, 0, fmt.Errorf("%s: %w", op, idem.ErrNoOperation)
	}
	s, err := l.Load(ctx, idem.Ref{Kind: idem.KindOperation, ID: id})
	if err != nil {
		return nil, 0, err
	}
	r := s.Operation(id)
	if r == nil {
		return nil, 0, fmt.Errorf("%s: %w", op, idem.ErrNoOperation)
	}
	return r, s.Now, nil
}

var errUnsettled = errors.New("it is not settled yet")
