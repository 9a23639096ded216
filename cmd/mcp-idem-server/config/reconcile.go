package config

import (
	"strings"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/reconcilers"
)

func (b *builder) reconcile() error {
	g := b.given.Reconcile
	if g == nil {
		return nil
	}
	at := b.at + ".reconcile"
	if g.Tool == "" {
		return fail(at+".tool", "is missing; it is a tool of the same upstream")
	}
	if server, _, ok := strings.Cut(b.tool.Match, "/"); ok && strings.HasPrefix(g.Tool, server+"/") {
		return fail(at+".tool", "%q: write the tool's name without the server's; it is a tool of the same upstream", g.Tool)
	}
	q := &reconcilers.Tool{Name: g.Tool, BusinessKey: b.tool.Key}
	var err error
	if q.Arguments, err = compile(at+".arguments", g.Arguments); err != nil {
		return err
	}
	if q.Found, err = required(at+".found", g.Found); err != nil {
		return err
	}
	if q.Result, err = compile(at+".result", g.Result); err != nil {
		return err
	}
	if err := b.identifies(at, q, g.Baseline); err != nil {
		return err
	}
	settle, err := b.settle(at, g.Settle)
	if err != nil {
		return err
	}
	r := &idem.QueryRules{Baseline: g.Baseline, Settle: settle,
		Every: g.Every.or(policy.DefaultEvery), GiveUp: g.GiveUp.or(policy.DefaultGiveUp)}
	if g.Every == nil {
		r.Every = min(r.Every, r.GiveUp)
	}
	switch {
	case r.Every == 0:
		return fail(at+".every", "must be more than 0s")
	case r.Every > r.GiveUp:
		return fail(at+".every", "%s is more than give_up (%s): it would never ask twice", r.Every, r.GiveUp)
	}
	b.query, b.tool.Query = q, r
	return nil
}

// settle: over HTTP nothing proves that an attempt without an answer has ended,
// so that "not found" may be believed only after the tool's longest run.
func (b *builder) settle(at string, given *Duration) (time.Duration, error) {
	remote := b.reaches(Transport.remote)
	switch {
	case remote == "":
		return given.or(policy.DefaultSettle), nil
	case given == nil:
		return max(policy.DefaultSettleHTTP, b.tool.Timeout), nil
	case given.or(0) < b.tool.Timeout:
		return 0, fail(at+".settle", "%s is less than timeout (%s), after which a call of %s over HTTP may still be running there; it has to cover the tool's longest run", given.or(0), b.tool.Timeout, remote)
	}
	return given.or(0), nil
}

// identifies checks that the query asks for this operation and no other: the
// row of an earlier, equal one would settle it otherwise, or nothing would ever
// be found and that be taken for proof of absence.
func (b *builder) identifies(at string, q *reconcilers.Tool, baseline bool) error {
	uses := func(name string) bool {
		return q.Found.Uses(name) || (q.Arguments != nil && q.Arguments.Uses(name))
	}
	key, business := uses("$key"), uses("$business_key")
	switch {
	case key && b.tool.Forward == policy.Forward{}:
		return fail(at, "$key is used, but nothing sends it to the upstream; name the place in forward")
	case business && b.tool.Key == nil:
		return fail(at, "$business_key is used, but the policy has no key")
	case !key && !business && !baseline:
		return fail(at, "uses neither $key nor $business_key, so it cannot tell this operation from an equal one; use one of them, or set baseline: true to count only what was not there before")
	}
	return nil
}
