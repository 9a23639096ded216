package idem

import "context"

// Report tells what came of an attempt that was not made here, or not made by
// Effect.Run: by word of who made it, in time or late. It is evidence like any
// other report, and settles what it can. The error is ErrNoOperation, ErrLate for
// an operation that has expired, a *TransitionError where the operation never
// had such an attempt, or the store's.
func (g *Guard) Report(ctx context.Context, op ID, attempt uint32, out Outcome) (*Record, error) {
	return g.change(ctx, op, nil, func(r *Record, now Instant) (Event, []Need) {
		rules, _ := g.cfg.Policy.Rules(r.Scope.Tool)
		return Report{When: When{now}, Terms: g.terms(r, rules, out.RetryAfter), Attempt: attempt, Outcome: out,
			Superseded: g.superseded(ctx, r)}, nil
	})
}
