package idem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Operator carries out what persons decide. Nothing of it is reachable by an
// agent. It is safe for concurrent use, also beside running guards.
type Operator struct {
	Store  Store
	Policy Policy // nil, or a tool it does not know: defaults of this package
}

// Command is one decision of a person.
type Command struct {
	ID         string  // carried out once; empty: a fresh one
	Op         ID      // of the operation
	Verb       string  // committed, not-applied, compensated or grant-retry
	Reason     string  // required
	Saw        Version // the version it was decided on; 0: whatever it is now
	ExternalID string  // with committed
	Result     []byte  // with committed: what replays return, raw
}

var (
	// ErrNoOperation: there is no operation with this id.
	ErrNoOperation = errors.New("there is no such operation")
	// ErrStale: the operation has moved on since the version that was seen.
	ErrStale = errors.New("the operation has changed since then")
	// ErrCommandUsed: the command id was used for another decision.
	ErrCommandUsed = errors.New("this command id was used for another decision")
)

// Decide carries out a decision and returns the operation as it stands then.
// The same command again changes nothing and returns the same.
func (o Operator) Decide(ctx context.Context, c Command) (*Record, error) {
	if c.Reason == "" {
		return nil, errors.New("a decision needs a reason")
	}
	if c.ID == "" {
		c.ID = rand.Text()
	}
	row := Ref{KindCommand, commandID(c.ID)}
	for {
		s, err := o.Store.Load(ctx, opRef(c.Op), row)
		if err != nil {
			return nil, err
		}
		r := s.Operation(c.Op)
		if r == nil {
			return nil, fmt.Errorf("%s: %w", c.Op, ErrNoOperation)
		}
		if done := s.Row(row).Command; done != nil {
			if done.Operation != c.Op || done.Verb != c.Verb {
				return nil, fmt.Errorf("%s: %w: %s of %s", c.ID, ErrCommandUsed, done.Verb, done.Operation)
			}
			return r, nil
		}
		if c.Saw != 0 && c.Saw != r.Version {
			return nil, fmt.Errorf("%s: %w: it is at version %d, the decision is on %d", c.Op, ErrStale, r.Version, c.Saw)
		}
		next, err := Next(r, o.event(c, r, s.Now))
		if err != nil {
			return nil, err
		}
		change := Change{Needs: []Need{{Ref: row}},
			Puts: []Row{{Ref: row, Command: &CommandRow{Operation: c.Op, Verb: c.Verb, Version: r.Version + 1, At: s.Now}}}}
		if err := o.put(ctx, change, r, next); err == nil {
			next.Version = r.Version + 1
			return next, nil
		} else if !errors.As(err, new(*Conflict)) && !errors.Is(err, ErrCommitUnknown) {
			return nil, err
		}
	}
}

func (o Operator) event(c Command, r *Record, now Instant) Event {
	d := Decision{Command: c.ID, Verb: c.Verb, Reason: c.Reason, Saw: c.Saw}
	if c.Verb == VerbGrantRetry {
		return Grant{When: When{now}, Decision: d}
	}
	return Resolve{When: When{now}, Terms: o.terms(r), Decision: d, ExternalID: c.ExternalID, Result: c.Result}
}

// Hurry asks for a query of the outside system now; who runs the upstream
// makes it.
func (o Operator) Hurry(ctx context.Context, op ID) (*Record, error) {
	for {
		s, err := o.Store.Load(ctx, opRef(op))
		if err != nil {
			return nil, err
		}
		r := s.Operation(op)
		if r == nil {
			return nil, fmt.Errorf("%s: %w", op, ErrNoOperation)
		}
		next, err := Next(r, Hurry{When: When{s.Now}, Terms: o.terms(r)})
		if err != nil {
			return r, err
		}
		if err := o.put(ctx, Change{}, r, next); err == nil {
			next.Version = r.Version + 1
			return next, nil
		} else if !errors.As(err, new(*Conflict)) {
			return nil, err
		}
	}
}

func (o Operator) terms(r *Record) Terms {
	if o.Policy != nil {
		if rules, ok := o.Policy.Rules(r.Scope.Tool); ok {
			return TermsOf(rules, r.Occurrence > 0, int(r.Round.Attempts), 0)
		}
	}
	return Terms{Retention: 720 * time.Hour, Query: r.Reconcile.Count > 0 || r.Reconcile.Next != 0}
}

// put commits the record as the successor of old, beside what c holds.
func (o Operator) put(ctx context.Context, c Change, old, rec *Record) error {
	c.Needs = append(c.Needs, Need{Ref: opRef(old.Op), Version: old.Version})
	c.Puts = append(c.Puts, Row{Ref: opRef(old.Op), Operation: rec})
	rejoin(&c, old, rec)
	_, _ = rand.Read(c.ID[:])
	_, err := o.Store.Commit(ctx, c)
	return err
}

// rejoin adds an operation that becomes unsettled again to its twins.
func rejoin(c *Change, old, rec *Record) {
	if rec.Slot != (ID{}) && !unsettled(old) && unsettled(rec) {
		c.Marks = append(c.Marks, Mark{Ref: Ref{KindSlot, rec.Slot}, Twin: rec.Op})
	}
}
