package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/crash"
)

// claim takes the operation and makes the attempt.
func (w *asker) claim(ctx context.Context, v verdict) (Answer, bool) {
	lctx, cancel := context.WithDeadline(ctx, w.limit)
	defer cancel()
	unlock, waited, ok := w.g.locks.lock(lctx, v.op)
	if waited { // somebody was faster: look again
		unlock()
		if !ok && ctx.Err() == nil {
			return w.refusal(v, CodeInProgress, inProgressText), true
		}
		return Answer{}, false
	}
	f, a, done := w.take(ctx, v)
	unlock()
	if f == nil {
		return a, done
	}
	return w.await(ctx, f, v)
}

// take prepares and commits the claim. No claim, no dispatch.
func (w *asker) take(ctx context.Context, v verdict) (*flight, Answer, bool) {
	g, q := w.g, w.q
	site, err := g.prepare(ctx, w.effect)
	if err != nil {
		return nil, w.unsent(v, "The upstream cannot be reached", err), true
	}
	if q.rules.Process && site.Incarnation != q.incarnation {
		return nil, w.unsent(v, "The upstream's process ended", nil), true
	}
	ev := Claim{Owner: g.cfg.Owner, Group: site.Group, Token: g.token(), Atomic: w.effect.Atomic != nil}
	var c Change
	// A retry keeps the baseline of its round: what is new since then is ours.
	kept := v.record.Reconcile.HasBase && v.record.State == StateFailedRetryable
	if qr := q.rules.Query; qr != nil && qr.Baseline && !kept && !ev.Atomic {
		if err = g.baseline(ctx, v.op, v.record, qr, &ev, &c); err != nil {
			return nil, w.unsent(v, "The query that takes the baseline failed", err), true
		}
	}
	now, err := g.cfg.Store.Clock(ctx)
	if err != nil {
		return nil, w.blind(err), true
	}
	ev.At, ev.Terms, ev.LeaseEnd = now, g.terms(v.record, q.rules, 0), now.Add(q.rules.Lease)
	rec, err := Next(v.record, ev)
	if err != nil { // the state moved on
		return nil, Answer{}, false
	}
	c.Puts = append(c.Puts, Row{Ref: opRef(v.op), Operation: rec})
	if v.begin != nil {
		c.Needs = append(c.Needs, v.begin.needs...)
		c.Puts = append(c.Puts, v.begin.puts...)
		c.Marks = append(c.Marks, v.begin.marks...)
	} else {
		c.Needs = append(append(c.Needs, Need{Ref: opRef(v.op), Version: v.record.Version}), v.needs...)
		rejoin(&c, v.record, rec)
	}
	// The claim is made whole even when the asker leaves meanwhile.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	_, err = g.commit(cctx, c)
	rec.Version = v.record.Version + 1
	switch {
	case errors.Is(err, ErrCommitUnknown):
		version, token := rec.Version, ev.Token
		var blind error
		if rec, blind = g.ours(cctx, v.op, token); blind != nil {
			g.wg.Go(func() { g.disown(v.op, version, token, q.rules) })
			return nil, w.blind(errors.Join(err, blind)), true
		}
		if rec == nil {
			return nil, Answer{}, false
		}
	case errors.As(err, new(*Conflict)):
		return nil, Answer{}, false
	case err != nil:
		return nil, w.blind(err), true
	}
	crash.At("claimed")
	g.observe(Observation{What: "transition", Op: v.op, From: v.record.State, Record: rec})
	return g.launch(v.op, rec, q.rules, w.effect, site), Answer{}, true
}

// unsent answers an ask whose claim was not made. An earlier attempt of the
// operation may have applied all the same.
func (w *asker) unsent(v verdict, why string, err error) Answer {
	if v.record.MayHaveApplied() {
		return w.refusal(v, CodeUnknown, why+", so nothing more was sent. Whether an earlier attempt was applied is not known.", err)
	}
	text := why + ", so nothing was sent."
	if err != nil {
		text = fmt.Sprintf("%s, so nothing was sent: %v", why, err)
	}
	return w.refusal(v, CodeFailed, text, err)
}

// doubtTime is how long an asker waits to see whether its claim was committed.
const doubtTime = 2 * time.Second

// ours reads an operation again after an ambiguous claim: own token and live
// lease means claimed. An error: it could not be read in time.
func (g *Guard) ours(ctx context.Context, op ID, t Token) (*Record, error) {
	ctx, cancel := context.WithTimeout(ctx, doubtTime)
	defer cancel()
	s, err := g.cfg.Store.Load(ctx, opRef(op))
	for err != nil {
		if !sleep(ctx, 50*time.Millisecond) {
			return nil, err
		}
		s, err = g.cfg.Store.Load(ctx, opRef(op))
	}
	r := s.Operation(op)
	if r == nil || r.State != StateStarted || r.Lease.Token != t || r.Lease.End <= s.Now {
		return nil, nil
	}
	return r, nil
}

// disown sees to a claim of version v that was given up and may be on record all
// the same, or come to be: nothing was sent under it, which is recorded when the
// ledger can be read again. Else others would have to take the attempt for one
// that may have applied. It looks for as long as the claim's lease.
func (g *Guard) disown(op ID, v Version, t Token, rules Rules) {
	end := time.Now().Add(rules.Lease)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		early := false // the claim is not on record, but may still come
		ctx, cancel := context.WithTimeout(g.ctx, recordTimeout)
		_, err := g.change(ctx, op, nil, func(r *Record, now Instant) (Event, []Need) {
			if r.Lease.Token != t {
				early = r.Version < v
				return nil, nil
			}
			return Report{When: When{now}, Terms: g.terms(r, rules, 0), Attempt: r.Last,
				Outcome: Outcome{Class: ClassNotSent, Text: "the ledger could not be read after the claim, so it was given up"}}, nil
		})
		cancel()
		switch {
		case early, errors.Is(err, ErrNoOperation):
			if time.Now().After(end) {
				return
			}
		case err == nil, errors.Is(err, ErrLate), errors.As(err, new(*TransitionError)):
			return
		}
		if !sleep(g.ctx, pause) {
			return
		}
	}
}
