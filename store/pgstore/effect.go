package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
)

// EffectFunc is what a tool does in the ledger's own transaction: see
// Store.Effect.
type EffectFunc = func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error)

// Effect makes an effect of a tool that works in the ledger's own database: what
// fn does in tx and the record that it was done commit together, or not at all.
// No outcome is unknown.
//
// fn may be called again in a new transaction, after a deadlock, a lost
// connection or a change of the record beside it: only one call's transaction
// commits, so fn must do nothing that tx does not undo. An error of fn rolls
// back, and so does an outcome whose class is no success; see idem.Decide. fn
// neither commits nor rolls back tx. Each of its statements, and each pause
// between two, is bounded by Config.StatementTimeout.
//
// The guard that runs the effect must work on this store.
func (s *Store) Effect(fn EffectFunc) idem.Effect {
	return idem.Effect{Atomic: func(ctx context.Context, d idem.Dispatch, decide idem.Decide) error {
		deadline := time.Now().Add(s.patience)
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			err := s.transact(ctx, decide, func(tx pgx.Tx) (idem.Outcome, error) { return fn(ctx, tx, d) })
			var lost *lostError
			if !errors.As(err, &lost) {
				return err
			}
			if time.Now().Add(pause).After(deadline) || !sleep(ctx, pause) {
				return s.explain(lost.error)
			}
		}
	}}
}

// lostError is the end of a transaction that was rolled back, and may do when it
// is run anew.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// An effect's function finds planner and search path as others know them; what
// follows it, as the ledger's statements need them: see place.defaults and
// place.pinPath. The limits are set for poolers.
const (
	beginEffect = `BEGIN; SET LOCAL enable_seqscan = on; SET LOCAL plan_cache_mode = auto; SET LOCAL search_path TO DEFAULT;
SET LOCAL statement_timeout = %[1]d; SET LOCAL idle_in_transaction_session_timeout = %[1]d`
	endEffect = `SET LOCAL search_path = pg_catalog; SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = force_generic_plan`
)

// transact makes one transaction of fn and what decide makes of it.
func (s *Store) transact(ctx context.Context, decide idem.Decide, fn func(pgx.Tx) (idem.Outcome, error)) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	begin, cancel := s.bound(ctx)
	tx, err := s.pool.BeginTx(begin, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginEffect, s.timeout.Milliseconds())})
	cancel()
	if err != nil {
		return s.rolledBack(err)
	}
	defer func() { // after a commit it does nothing
		bound, cancel := s.bound(context.WithoutCancel(ctx))
		defer cancel()
		_ = tx.Rollback(bound)
	}()
	out, err := fn(&lent{tx})
	switch {
	case err != nil && (tx.Conn().IsClosed() || rerun(err)):
		return &lostError{err}
	case err == nil && tx.Conn().PgConn().TxStatus() != 'T':
		err = errors.New("pgstore: a statement of the effect failed, or it ended the transaction, and reported no error")
	}
	c, err := decide(out, err)
	if err != nil {
		return err
	}
	p, err := newPlan(&c)
	if err != nil {
		return err
	}
	bound, cancel := s.bound(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := tx.Exec(bound, endEffect); err != nil {
		return s.rolledBack(err)
	}
	verdicts, err := s.send(bound, tx, []*plan{p})
	if err != nil {
		return s.rolledBack(err)
	}
	if err := verdicts[0].err; err != nil {
		return public(err)
	}
	return s.finish(bound, tx, p)
}

// rolledBack is the end of a transaction that was not committed.
func (s *Store) rolledBack(err error) error {
	if judge(err) == refused {
		return s.explain(err)
	}
	return &lostError{err}
}

// finish commits. Where the answer is lost, the row tells.
func (s *Store) finish(ctx context.Context, tx pgx.Tx, p *plan) error {
	err := tx.Commit(ctx)
	if err != nil && judge(err) == unknown && !errors.Is(err, pgx.ErrTxCommitRollback) {
		err = s.inquire(context.WithoutCancel(ctx), p, err)
	} else if err != nil {
		err = s.rolledBack(err)
	}
	if err == nil {
		s.busy.Store(true)
		s.announce(p)
	}
	return err
}

// inquire finds out whether the plan was committed by a transaction whose end
// was not seen. Its row is locked to read it: a transaction that the server has
// not given up yet is waited for.
func (s *Store) inquire(ctx context.Context, p *plan, lost error) error {
	if len(p.changed) == 0 {
		return s.unsure(s.explain(lost))
	}
	op := p.changed[0]
	need := p.need(idem.Ref{Kind: idem.KindOperation, ID: op})
	var change []byte
	var version idem.Version
	err := s.read(ctx, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, s.sql(`SELECT version, change FROM {schema}.operation WHERE id = $1 FOR UPDATE`), op[:]).Scan(&version, &change)
		if errors.Is(err, pgx.ErrNoRows) {
			version, change, err = 0, nil, nil
		}
		return err
	})
	switch {
	case err != nil:
		return s.unsure(err)
	case string(change) == string(p.id[:]):
		return nil
	case need != nil && version == need.Version:
		return &lostError{lost}
	}
	return fmt.Errorf("%w: the connection was lost in the commit, and the row was changed since: %w", idem.ErrCommitUnknown, s.explain(lost))
}

// lent is a transaction that its borrower cannot end. Savepoints work.
type lent struct{ pgx.Tx }

var errLent = errors.New("pgstore: the transaction of an effect is committed with its record, not by the effect")

func (*lent) Commit(context.Context) error   { return errLent }
func (*lent) Rollback(context.Context) error { return errLent }
