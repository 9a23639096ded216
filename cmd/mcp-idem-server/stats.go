package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
)

// toolStats counts the operations of one tool as stats --json prints them.
type toolStats struct {
	Tenant       string         `json:"tenant"`
	Tool         string         `json:"tool"`
	Operations   int            `json:"operations"`
	States       map[string]int `json:"states"`
	Attempts     int            `json:"attempts"`   // of all operations
	Reconciled   int            `json:"reconciled"` // settled by a query
	Duplicates   int            `json:"duplicates"` // further effects that are known
	OldestOpenAt string         `json:"oldest_open_at,omitempty"`

	oldest idem.Instant
}

func (s *toolStats) add(r *idem.Record, now idem.Instant) {
	s.Operations++
	s.States[string(r.Shown(now))]++
	s.Attempts += int(r.Last)
	s.Duplicates += int(r.Duplicates)
	if r.Reconciled {
		s.Reconciled++
	}
	if !r.State.Final() && (s.oldest == 0 || r.CreatedAt < s.oldest) {
		s.oldest, s.OldestOpenAt = r.CreatedAt, stamp(r.CreatedAt)
	}
}

func (p *program) stats() *cobra.Command {
	var task string
	var all bool
	c := &cobra.Command{Use: "stats [--task T] [--all]", Short: "Count the operations of each tool by their states", Args: noArgs}
	c.Flags().StringVar(&task, "task", "", "only of this task")
	c.Flags().BoolVar(&all, "all", false, "also records that have expired")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return p.withLedger(c.Context(), func(ctx context.Context, l *opened) error {
			type tool struct{ tenant, name string }
			tools := map[tool]*toolStats{}
			err := l.each(ctx, func(r *idem.Record, now idem.Instant) error {
				if (r.Expired && !all) || (task != "" && r.Task != task) || (p.flags.tenant != "" && r.Scope.Tenant != p.flags.tenant) {
					return nil
				}
				k := tool{r.Scope.Tenant, r.Scope.Tool}
				s := tools[k]
				if s == nil {
					s = &toolStats{Tenant: k.tenant, Tool: k.name, States: map[string]int{}}
					tools[k] = s
				}
				s.add(r, now)
				return nil
			})
			if err != nil {
				return err
			}
			rows := slices.SortedFunc(maps.Values(tools), func(a, b *toolStats) int {
				return slices.Compare([]string{a.Tenant, a.Tool}, []string{b.Tenant, b.Tool})
			})
			return p.printStats(rows)
		})
	}
	return c
}

func (p *program) printStats(rows []*toolStats) error {
	if p.flags.json {
		if rows == nil {
			rows = []*toolStats{}
		}
		return p.printJSON(rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(p.out, "no operations")
		return nil
	}
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tTOOL\tOPERATIONS\tCOMMITTED\tFAILED\tOPEN\tUNKNOWN\tREVIEW\tATTEMPTS\tRECONCILED\tDUPLICATES\tOLDEST OPEN")
	for _, s := range rows {
		n := func(states ...idem.State) (sum int) {
			for _, state := range states {
				sum += s.States[string(state)]
			}
			return sum
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", short(s.Tenant), short(s.Tool), s.Operations,
			n(idem.StateCommitted), n(idem.StateFailedFinal, idem.StateCompensated), n(idem.StatePlanned, idem.StateStarted, idem.StateFailedRetryable, idem.StateCompensating),
			n(idem.StateUnknown, idem.StateReconciling), n(idem.StateNeedsReview), s.Attempts, s.Reconciled, s.Duplicates, s.OldestOpenAt)
	}
	return w.Flush()
}
