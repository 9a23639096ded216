package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/mcp"
	"github.com/mcp-idem/mcp-idem/policy"
)

// toolReport is what doctor says of one tool.
type toolReport struct {
	Tool      string `json:"tool"`
	ShownAs   string `json:"shown_as,omitempty"` // to clients, where it is another name
	Hidden    bool   `json:"hidden,omitempty"`   // allow and deny leave it out
	Policy    string `json:"policy"`             // the match that decides; ** and no index: the defaults
	Index     *int   `json:"policy_index,omitempty"`
	Effect    string `json:"effect"`
	Guarantee string `json:"guarantee"`
	Risk      string `json:"risk,omitempty"` // what is left
}

func (t *toolReport) print(w io.Writer) {
	name, match := clean(t.Tool), "(defaults)"
	if t.ShownAs != "" {
		name += " (" + clean(t.ShownAs) + ")"
	}
	if t.Hidden {
		fmt.Fprintf(w, "%s\n  not shown to clients: allow and deny leave it out\n", name)
		return
	}
	if t.Index != nil {
		match = fmt.Sprintf("%s (policies[%d])", t.Policy, *t.Index)
	}
	fmt.Fprintf(w, "%s\n  policy %s, effect %s\n  %s\n", name, match, t.Effect, t.Guarantee)
	if t.Risk != "" {
		fmt.Fprintf(w, "  what is left: %s\n", t.Risk)
	}
}

// guarantee is a line of the table of guarantees.
func (t *toolReport) guarantee(set *policy.Set) {
	rules, _ := set.Rules(t.Tool)
	t.Risk = ""
	switch {
	case t.Effect == string(policy.EffectRead):
		t.Guarantee = "not guarded: a read"
	case rules.Query != nil:
		t.Guarantee = "unknown outcomes are settled by a query, then replayed or retried"
		t.Risk = "an attempt that its paused or cut-off owner still sends after settle (" + rules.Query.Settle.String() + ")"
		if rules.Query.Baseline {
			t.Guarantee = "unknown outcomes are settled by a query against a baseline, then replayed or retried"
			t.Risk += "; an equal effect of somebody else's between the two queries looks like ours"
		}
	case rules.Resend:
		t.Guarantee = "unknown outcomes are sent again: the policy calls the tool idempotent"
	default:
		t.Guarantee = "at most once; an unknown outcome waits for a person"
	}
}

// toolsReport goes through the tools of every upstream.
type toolsReport struct {
	*report
	cfg   *config.Config
	set   *policy.Set
	names []string            // in full, of the tools that clients see
	shown map[string][]string // full names by what clients see
}

func (r *toolsReport) add(u *config.Upstream, tools []*mcp.ToolInfo) {
	var alone, hinted []string
	for _, t := range tools {
		r.set.Hint(u.Name, t.Name, t.ReadOnly)
		full, shown := u.Name+"/"+t.Name, t.Name
		entry := r.set.Tool(full)
		tr := toolReport{Tool: full, Policy: entry.Match, Effect: string(r.set.Effect(full)), Hidden: !u.Allows(t.Name)}
		if i, ok := r.set.Index(full); ok {
			tr.Index = &i
		}
		if r.cfg.Prefixed() {
			shown = u.Name + "__" + t.Name
			tr.ShownAs = shown
		}
		tr.guarantee(r.set)
		r.Tools = append(r.Tools, tr)
		if tr.Hidden {
			continue
		}
		r.names = append(r.names, full)
		r.see(shown, full)
		if a := entry.Forward.Argument; a != "" && !t.Takes(a) {
			r.warn("%s: forward.argument %q does not fit the tool's schema (additionalProperties is false)", full, a)
		}
		if entry.Query == nil && tr.Effect == string(policy.EffectWrite) {
			alone = append(alone, full)
			if t.ReadOnly && tr.Index == nil {
				hinted = append(hinted, full)
			}
		}
		if q := entry.QueryTool(); q != "" {
			r.query(u.Name, tools, full, q)
		}
	}
	if len(alone) > 0 {
		r.warn("no way to reconcile: an outcome of %s that is not known waits for a person; doctor --suggest looks for queries", strings.Join(alone, ", "))
	}
	if len(hinted) > 0 {
		r.warn("%s calls %s read only, which is not believed, so that they are guarded: give them a policy with effect: read, or name the server in trust_hints (--trust-hints)", u.Name, strings.Join(hinted, ", "))
	}
	if tools != nil {
		r.globs(u, tools)
	}
}

// longestName is what every client takes as the name of a tool.
const longestName = 64

func (r *toolsReport) see(shown, full string) {
	if r.shown == nil {
		r.shown = map[string][]string{}
	}
	r.shown[shown] = append(r.shown[shown], full)
	if len(r.shown[shown]) == 2 {
		r.warn("%s is the name of more than one tool (%s); say names: prefix, or leave one out with deny", shown, strings.Join(r.shown[shown], ", "))
	}
	if len(shown) > longestName {
		r.warn("%s is %d characters long, and several clients take at most %d; a shorter name of the server helps", shown, len(shown), longestName)
	}
}

// query is about the tool that a reconcile asks with.
func (r *toolsReport) query(server string, tools []*mcp.ToolInfo, full, query string) {
	switch {
	case !slices.ContainsFunc(tools, func(t *mcp.ToolInfo) bool { return t.Name == query }):
		r.warn("%s: reconcile.tool %q is not one of the upstream's tools: nothing can be settled by it", full, query)
	case r.set.Effect(server+"/"+query) != policy.EffectRead:
		r.warn("%s: reconcile.tool %q is not declared effect: read; a query must not change anything", full, query)
	}
}

// globs of allow and deny that match nothing are often misspelt.
func (r *toolsReport) globs(u *config.Upstream, tools []*mcp.ToolInfo) {
	for field, globs := range map[string][]string{"allow": u.Allow, "deny": u.Deny} {
		for _, g := range globs {
			if !slices.ContainsFunc(tools, func(t *mcp.ToolInfo) bool { return policy.Matches(g, t.Name) }) {
				r.warn("mcpServers.%s.%s: %q matches no tool", u.Name, field, g)
			}
		}
	}
}

// conclude is about the policies. complete: the tools of every upstream are
// known.
func (r *toolsReport) conclude(complete bool) {
	for _, i := range r.set.Unmatched(r.names) {
		match := r.set.Entry(i).Match
		running := func(name string) bool {
			return slices.ContainsFunc(r.cfg.Upstreams, func(u config.Upstream) bool { return u.Name == name })
		}
		switch reached := r.cfg.Reached(match); {
		case slices.ContainsFunc(r.names, func(n string) bool { return policy.Matches(match, n) }):
			r.warn("policies[%d] (%s) is never reached: an earlier entry matches its tools first", i, match)
		case !complete || len(reached) > 0 && !slices.ContainsFunc(reached, running): // of a server that is disabled
		default:
			r.warn("policies[%d] (%s) matches no tool; there are %s", i, match, strings.Join(r.names, ", "))
		}
	}
	slices.SortFunc(r.Tools, func(a, b toolReport) int { return strings.Compare(a.Tool, b.Tool) })
}
