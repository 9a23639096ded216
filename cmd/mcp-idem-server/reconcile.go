package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

// reconcileWait bounds how long ops reconcile waits for an outcome.
const reconcileWait = 30 * time.Second

func (p *program) opsReconcile() *cobra.Command {
	var now bool
	c := &cobra.Command{Use: "reconcile [OP]", Short: "Ask the outside system about an operation, or about all that are unsettled"}
	c.Flags().BoolVar(&now, "now", false, "do not wait until the next query is due")
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return oneOp(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return p.withLedger(c.Context(), func(ctx context.Context, l *opened) error {
			ops, err := p.unsettled(ctx, l, args)
			if err != nil {
				return err
			}
			stop, err := p.asker(ctx, l)
			if err != nil {
				return err
			}
			defer stop()
			return p.reconcile(ctx, l, ops, now)
		})
	}
	return c
}

// unsettled are the operations that a query may settle: the named one, or all
// that this command, or the gateway that holds the ledger, can ask about.
func (p *program) unsettled(ctx context.Context, l *opened, args []string) ([]*idem.Record, error) {
	if len(args) == 1 {
		r, _, err := l.record(ctx, args[0])
		if err != nil {
			return nil, err
		}
		if why := p.foreign(l, r); why != "" {
			return nil, usagef("%s: %s", r.Op, why)
		}
		return []*idem.Record{r}, nil
	}
	var ops []*idem.Record
	err := l.each(ctx, func(r *idem.Record, _ idem.Instant) error {
		if (r.State == idem.StateStarted || r.Reconcile.Next != 0) && p.foreign(l, r) == "" {
			ops = append(ops, r)
		}
		return nil
	})
	return ops, err
}

// foreign says why an operation is not this configuration's to ask about; empty:
// it is.
func (p *program) foreign(l *opened, r *idem.Record) string {
	if l.cfg == nil {
		return ""
	}
	if _, ok := l.cfg.Set.Rules(r.Scope.Tool); !ok {
		return fmt.Sprintf("its server %s is not one of the configuration", r.Server())
	}
	if tenant := p.tenant(l.cfg.Config); r.Scope.Tenant != tenant {
		return fmt.Sprintf("it belongs to tenant %s, not to %s", r.Scope.Tenant, tenant)
	}
	return ""
}

// asker makes sure that somebody makes the queries: the gateway that holds the
// ledger, or a guard of this process's own with the upstream of the
// configuration.
func (p *program) asker(ctx context.Context, l *opened) (stop func(), err error) {
	if l.held || l.Store == nil {
		return func() {}, nil
	}
	if l.cfg == nil || len(l.cfg.Upstreams) == 0 {
		return nil, usagef("no gateway is known to run on this ledger, so the upstream has to be started here: give --config FILE")
	}
	log, err := p.logger()
	if err != nil {
		return nil, err
	}
	h, err := p.house(l.cfg.Config, l.Store, log, -1)
	if err != nil {
		return nil, err
	}
	end := h.recover(ctx)
	return func() { end(); h.close() }, nil
}

// reconcile waits for each operation's outcome and prints it.
func (p *program) reconcile(ctx context.Context, l *opened, ops []*idem.Record, now bool) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileWait)
	defer cancel()
	rows, open := []row{}, false
	for _, r := range ops {
		r, err := l.settle(ctx, r, now)
		if err != nil {
			return err
		}
		at, err := l.Clock(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		open = open || !(r.State.Final() || r.State == idem.StateFailedRetryable)
		rows = append(rows, rowOf(r, at))
	}
	if err := p.printRows(rows); err != nil {
		return err
	}
	if open {
		return errUnsettled
	}
	return nil
}

// settle follows one operation until it is settled, a person is called, or ctx
// ends.
func (l *opened) settle(ctx context.Context, r *idem.Record, now bool) (*idem.Record, error) {
	if now && r.State != idem.StateStarted {
		hurried, err := l.operator().Hurry(ctx, r.Op)
		if err != nil && !errors.As(err, new(*idem.TransitionError)) {
			return nil, err
		}
		r = hurried
	}
	first := r
	for {
		asked := r.Reconcile.Count > first.Reconcile.Count && r.Reconcile.Lease.End == 0
		waits := r.State == idem.StateStarted || r.Reconcile.Next != 0
		if !waits || (r.State == idem.StateNeedsReview && (!now || asked)) {
			return r, nil
		}
		err := l.Watch(ctx, r.Op, r.Version)
		if ctx.Err() != nil {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		if r, _, err = l.record(ctx, r.Op.String()); err != nil {
			return nil, err
		}
	}
}

// loaded is a configuration that a command runs with, and its policies.
type loaded struct {
	*config.Config
	Set idem.Policy
}

// optionalConfig loads the configuration of a command that can do without.
func (p *program) optionalConfig() (*loaded, error) {
	if p.flags.config == "" {
		return nil, nil
	}
	cfg, err := p.loadConfig()
	if err != nil {
		return nil, err
	}
	set, err := cfg.Set(func(context.Context, idem.Lookup, string, []byte) ([]byte, error) {
		return nil, fmt.Errorf("this command asks no upstream")
	})
	if err != nil {
		return nil, err
	}
	return &loaded{Config: cfg, Set: set}, nil
}
