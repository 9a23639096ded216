package idem

import (
	"context"
	"errors"
	"slices"
	"time"
)

// recordTimeout bounds one attempt to write something that must not be lost.
const recordTimeout = 10 * time.Second

// commit commits a change; what is to be marked rides along.
func (g *Guard) commit(ctx context.Context, c Change) (Stamp, error) {
	g.cfg.Random(c.ID[:])
	marks := g.marks.take()
	c.Marks = append(c.Marks, marks...)
	s, err := g.cfg.Store.Commit(ctx, c)
	g.marks.done(marks, err)
	return s, err
}

func (g *Guard) commitMarks(marks []Mark) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.ctx), recordTimeout)
	defer cancel()
	c := Change{Marks: marks}
	g.cfg.Random(c.ID[:])
	_, err := g.cfg.Store.Commit(ctx, c)
	return err
}

// put commits the record as the successor of the one at version. A record that
// becomes unsettled again joins its twins.
func (g *Guard) put(ctx context.Context, op ID, old, rec *Record, needs ...Need) error {
	c := Change{Needs: append([]Need{{Ref: opRef(op), Version: old.Version}}, needs...), Puts: []Row{{Ref: opRef(op), Operation: rec}}}
	rejoin(&c, old, rec)
	_, err := g.commit(ctx, c)
	if err == nil {
		rec.Version = old.Version + 1
		g.observe(Observation{What: "transition", Op: op, From: old.State, Record: rec})
	}
	return err
}

// change moves an operation on by the event that f makes of its current record,
// and again when somebody else was faster. known, if it is not nil, saves the
// first look. A nil event leaves everything as it is.
func (g *Guard) change(ctx context.Context, op ID, known *Record, f func(r *Record, now Instant) (Event, []Need)) (*Record, error) {
	for {
		rec := known
		known = nil
		var now Instant
		var err error
		if rec == nil {
			var s Snapshot
			if s, err = g.cfg.Store.Load(ctx, opRef(op)); err != nil {
				return nil, err
			}
			rec, now = s.Operation(op), s.Now
		} else if now, err = g.cfg.Store.Clock(ctx); err != nil {
			return nil, err
		}
		if rec == nil {
			return nil, ErrNoOperation
		}
		ev, needs := f(rec, now)
		if ev == nil {
			return rec, nil
		}
		next, err := Next(rec, ev)
		if err != nil {
			return rec, err
		}
		err = g.put(ctx, op, rec, next, needs...)
		if conflict, ok := errors.AsType[*Conflict](err); ok {
			if conflict.Why == "lease" {
				return rec, err
			}
			continue
		}
		if errors.Is(err, ErrCommitUnknown) { // the version tells
			s, lerr := g.cfg.Store.Load(ctx, opRef(op))
			if lerr != nil {
				return nil, err
			}
			if got := s.Operation(op); got != nil && got.Version == rec.Version+1 && got.UpdatedAt == next.UpdatedAt && got.State == next.State {
				return got, nil
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return next, nil
	}
}

// terms of a record's next transition.
func (g *Guard) terms(r *Record, rules Rules, floor time.Duration) Terms {
	return TermsOf(rules, r.Occurrence > 0, int(r.Round.Attempts), floor)
}

// aliasLimit bounds how many call ids an operation is found by.
const aliasLimit = 64

// alias notes that a call id of a client met an operation, off anybody's path.
func (g *Guard) alias(op, row ID) {
	ctx, cancel := context.WithTimeout(g.ctx, recordTimeout)
	defer cancel()
	for {
		s, err := g.cfg.Store.Load(ctx, opRef(op))
		r := s.Operation(op)
		if err != nil || r == nil || r.Expired || len(r.Aliases) >= aliasLimit || slices.Contains(r.Aliases, row) {
			return
		}
		next := r.Clone()
		next.Aliases = append(next.Aliases, row)
		_, err = g.commit(ctx, Change{Needs: []Need{{Ref: opRef(op), Version: r.Version}}, Puts: []Row{{Ref: opRef(op), Operation: next}},
			Marks: []Mark{{Ref: Ref{KindAlias, row}, Alias: &Alias{Operation: op}}}})
		if !errors.As(err, new(*Conflict)) {
			return
		}
	}
}
