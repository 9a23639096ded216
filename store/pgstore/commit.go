package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
)

// Commit implements idem.Store. A Change is one statement, and one round trip.
// Losing a connection, a restart of the server, deadlocks and races between
// inserts are ridden out for Config.Patience; see the package documentation.
func (s *Store) Commit(ctx context.Context, c idem.Change) (idem.Stamp, error) {
	if err := s.ready(ctx); err != nil {
		return idem.Stamp{}, err
	}
	p, err := newPlan(&c)
	if err != nil {
		return idem.Stamp{}, err
	}
	p.deadline, p.done = time.Now().Add(s.patience), make(chan verdict, 1)
	return s.commit(ctx, p)
}

// verdict is what became of one plan.
type verdict struct {
	stamp     idem.Stamp
	err       error
	undecided bool // nothing was changed, and it has to be found out why
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// persist sends a group until the outcome of each plan is known, or for as long
// as its patience and ctx allow, and tells it. lean: first with a leaner
// statement, where there is one.
func (s *Store) persist(ctx context.Context, group []*plan, lean bool) {
	doubt := false // an earlier try may have been applied, or may still be
	for pause := firstPause; len(group) > 0; pause = min(2*pause, lastPause) {
		bound, cancel := s.bound(ctx)
		verdicts, err := s.sendPooled(bound, group, lean)
		cancel()
		if err == nil {
			s.busy.Store(true)
			if doubt {
				settle(group, verdicts)
			}
			s.decide(ctx, group, verdicts)
			return
		}
		lean = false // it meets a race with an error, again and again
		f := judge(err)
		if stuck(err) && !doubt && len(group) > 1 {
			s.separate(ctx, group)
			return
		}
		doubt = doubt || f == unknown
		group = s.give(ctx, group, err, doubt, func(p *plan) bool { return f == refused || time.Now().Add(pause).After(p.deadline) })
		if len(group) > 0 && !rest(ctx, f, pause) {
			s.give(ctx, group, err, doubt, func(*plan) bool { return true })
			return
		}
	}
}

// separate sends every plan of a group by itself: one of them waits for a row
// that somebody has locked, and the others need not.
func (s *Store) separate(ctx context.Context, group []*plan) {
	var wg sync.WaitGroup
	for _, p := range group {
		wg.Go(func() { s.persist(ctx, []*plan{p}, true) })
	}
	wg.Wait()
}

// decide tells the plans their verdicts, and sends those again whose verdict the
// leaner statement left open.
func (s *Store) decide(ctx context.Context, group []*plan, verdicts []verdict) {
	var open []*plan
	for i, p := range group {
		if verdicts[i].undecided {
			open = append(open, p)
		} else {
			s.tell(p, verdicts[i])
		}
	}
	s.persist(ctx, open, false)
}

// tell ends a plan.
func (s *Store) tell(p *plan, v verdict) {
	if v.err == nil {
		s.announce(p)
	} else {
		v = verdict{err: public(v.err)}
	}
	p.done <- v
}

// rest waits before the next try. Where nothing but a race was lost there is
// nothing to wait for.
func rest(ctx context.Context, f fate, pause time.Duration) bool {
	if f == again && pause == firstPause {
		return ctx.Err() == nil
	}
	return sleep(ctx, pause)
}

// give tells those that give up why, and returns the others.
func (s *Store) give(ctx context.Context, group []*plan, err error, doubt bool, up func(*plan) bool) []*plan {
	switch {
	case doubt:
		err = s.unsure(s.explain(err))
	case s.closed.Load():
		err = idem.ErrClosed
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = s.explain(err)
	}
	return slices.DeleteFunc(group, func(p *plan) bool {
		if !up(p) {
			return false
		}
		s.tell(p, verdict{err: err})
		return true
	})
}

// settle judges conflicts after a try whose outcome is not known. A row that
// carries the plan's own id says that the plan was applied then. Another id may
// have been written after it: then only the caller can tell, by its token.
func settle(group []*plan, verdicts []verdict) {
	for i := range verdicts {
		c, ok := errors.AsType[*conflict](verdicts[i].err)
		switch {
		case !ok:
		case c.by == group[i].id:
			verdicts[i].err = nil
		default:
			verdicts[i].err = fmt.Errorf("%w: the connection was lost in the commit, and the row was changed since: %w", idem.ErrCommitUnknown, c)
		}
	}
}

// conflict is an idem.Conflict that knows who wrote the row.
type conflict struct {
	*idem.Conflict
	by idem.ChangeID
}

func (c *conflict) Unwrap() error { return c.Conflict }

func (s *Store) sendPooled(ctx context.Context, group []*plan, lean bool) (verdicts []verdict, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConnection, err)
	}
	defer conn.Release()
	defer func() {
		if readOnly(err) || dropped(err) {
			s.pool.Reset() // the primary may be elsewhere now, or another ledger in this one's place
		}
	}()
	switch {
	case lean && len(group) == 1:
		if now, err := s.sendSingle(ctx, conn, group[0]); err != nil || now != 0 {
			return []verdict{{stamp: idem.Stamp{Time: now}}}, err
		}
	case lean && isFlat(group):
		return s.sendFlat(ctx, conn, group)
	}
	return s.send(ctx, conn, group)
}

// sendSingle tries the leaner statement; 0: nothing was changed.
func (s *Store) sendSingle(ctx context.Context, on querier, p *plan) (now idem.Instant, err error) {
	text, args, ok := single(p)
	if !ok {
		return 0, nil
	}
	var t time.Time
	sent := time.Now()
	err = on.QueryRow(ctx, s.sql(text), args...).Scan(&t)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return s.clock.server(t, sent), nil
}

// send carries a group out in one round trip.
func (s *Store) send(ctx context.Context, on querier, group []*plan) ([]verdict, error) {
	text, args := compose(group)
	sent := time.Now()
	rows, err := on.Query(ctx, s.sql(text), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	verdicts := make([]verdict, len(group))
	var now idem.Instant
	for rows.Next() {
		var (
			plan, source *int
			id, change   []byte
			have, want   *int64
			why          *string
		)
		if err := rows.Scan(&now, &plan, &source, &id, &have, &want, &why, &change); err != nil {
			return nil, err
		}
		if plan == nil { // every need holds
			continue
		}
		c := &conflict{Conflict: &idem.Conflict{Have: idem.Version(*have), Want: idem.Version(*want), Why: *why}}
		if c.Ref, err = sourceRef(*source, id); err != nil {
			return nil, err
		}
		copy(c.by[:], change)
		v := &verdicts[*plan]
		if other, ok := errors.AsType[*conflict](v.err); !ok || other.by != group[*plan].id {
			v.err = c // the own id among several says the most
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	now = s.clock.ledger(now, sent)
	for i := range verdicts {
		verdicts[i].stamp.Time = now
	}
	return verdicts, nil
}

func sourceRef(source int, id []byte) (idem.Ref, error) {
	if source == 0 {
		op, err := idOf(id)
		return idem.Ref{Kind: idem.KindOperation, ID: op}, err
	}
	return refOf(id)
}

// public is the error that leaves the store: the plain conflict.
func public(err error) error {
	if c, ok := errors.AsType[*conflict](err); ok && !errors.Is(err, idem.ErrCommitUnknown) {
		return c.Conflict
	}
	return err
}
