package boltstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// EffectFunc is what a tool does in the ledger's own transaction: see
// Store.Effect.
type EffectFunc = func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error)

// Effect makes an effect of a tool that keeps its data in the ledger's file: what
// fn changes in tx and the record that it was done commit together, or not at
// all. No outcome is unknown.
//
// An error of fn rolls back, as does an outcome whose class is no success, or a
// panic; see idem.Decide. fn may be called again, in another transaction, when
// the record was changed beside it: only one call's changes commit, so fn must do
// nothing that tx does not undo.
//
// tx is the only write transaction there is. As long as fn runs, nothing else is
// recorded in the ledger, so fn has to be quick: other processes wait for two
// seconds. A commit with fn's context is refused, since it would wait for fn.
//
// fn keeps its data in buckets of its own, whatever their names, nested ones too,
// but for the ledger's: operation, key, slot, delivery, alias, command, ledger,
// by-due, by-state and by-task. Writing to these rolls back. fn does not end tx.
//
// The guard that runs the effect must work on this store.
func (s *Store) Effect(fn EffectFunc) idem.Effect {
	return idem.Effect{Atomic: func(ctx context.Context, d idem.Dispatch, decide idem.Decide) error {
		return s.effect(ctx, d, decide, fn)
	}}
}

// Effect is Store.Effect in the process that holds the file. In another one
// nothing is claimed, and the ask gets ErrLocked.
func (s *Shared) Effect(fn EffectFunc) idem.Effect {
	return idem.Effect{
		Prepare: func(context.Context) (idem.Site, error) {
			_, err := s.holder()
			return idem.Site{}, err
		},
		Atomic: func(ctx context.Context, d idem.Dispatch, decide idem.Decide) error {
			st, err := s.holder()
			if err != nil {
				return err
			}
			return st.effect(ctx, d, decide, fn)
		},
	}
}

func (s *Shared) holder() (*Store, error) {
	st, err := s.current()
	if err != nil {
		return nil, err
	}
	if held, ok := st.(*Store); ok {
		return held, nil
	}
	return nil, fmt.Errorf("%w: %s%s: an effect in the ledger's own transaction is made there, or after that process has ended",
		ErrLocked, s.cfg.Path, holder(s.cfg.Path))
}

// within marks the context of an effect's function with its store.
type within struct{}

// outside refuses what would wait for the transaction that it is called in.
func (s *Store) outside(ctx context.Context) error {
	if ctx.Value(within{}) == s {
		return fmt.Errorf("boltstore: %s: an effect's function asks for another commit while its own transaction is open", s.path)
	}
	return nil
}

func (s *Store) effect(ctx context.Context, d idem.Dispatch, decide idem.Decide, fn EffectFunc) error {
	if err := errors.Join(s.ready(ctx), s.outside(ctx)); err != nil {
		return err
	}
	var plan *core.Plan
	err := s.update(func(tx *bbolt.Tx) (bool, error) {
		if err := s.ready(ctx); err != nil { // it may have waited
			return false, err
		}
		c, err := s.call(ctx, tx, d, decide, fn)
		if err != nil {
			return false, err
		}
		p, err := core.Prepare(&c)
		if err != nil {
			return false, err
		}
		now := s.clock.Now()
		if plan, err = p.Plan(view{tx}, now, s.leases); err != nil {
			return false, s.refused(err)
		}
		for i := range plan.Writes {
			if err := (view{tx}).write(&plan.Writes[i]); err != nil {
				return false, err
			}
		}
		if err := putTime(tx, now); err != nil {
			return false, err
		}
		return true, s.inPlace() // it may have taken its time
	})
	if err == nil {
		plan.Settle(s.leases, s.watchers)
	}
	return err
}

// call runs the tool's function and decides on what it returned.
func (s *Store) call(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch, decide idem.Decide, fn EffectFunc) (idem.Change, error) {
	own, committed := ledgerBuckets(tx), false
	tx.OnCommit(func() { committed = true })
	out, err := guarded(context.WithValue(ctx, within{}, s), tx, d, fn)
	switch {
	case tx.DB() != nil:
		if name := written(tx, own); name != "" {
			out, err = idem.Outcome{}, fmt.Errorf("boltstore: %s: the effect's function wrote into the bucket %q, which is the ledger's", s.path, name)
		}
		return decide(out, err)
	case !committed:
		return decide(idem.Outcome{}, s.ended("rolled back"))
	}
	// The changes stand, so their record has to.
	out.Class = idem.ClassSuccess
	c, err := decide(out, nil)
	if err == nil {
		_, err = s.Commit(context.WithoutCancel(ctx), c)
	}
	return idem.Change{}, errors.Join(s.ended("committed"), err)
}

func (s *Store) ended(how string) error {
	return fmt.Errorf("boltstore: %s: the effect's function %s the ledger's transaction, which the ledger ends", s.path, how)
}

// guarded calls the function. Its panic is its own and no damage of the file, but
// for a fault in the mapping.
func guarded(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch, fn EffectFunc) (out idem.Outcome, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if _, fault := p.(interface{ Addr() uintptr }); fault {
			panic(p)
		}
		if p == nil { // runtime.Goexit: nobody else will let go of the file
			_ = tx.Rollback()
		}
		out, err = idem.Outcome{Class: idem.ClassAmbiguous}, fmt.Errorf("the effect's function panicked: %v\n%s", p, debug.Stack())
	}()
	out, err = fn(ctx, tx, d)
	returned = true
	return out, err
}

// ledgerBuckets are the ledger's own buckets as the transaction finds them.
func ledgerBuckets(tx *bbolt.Tx) map[string]*bbolt.Bucket {
	own := map[string]*bbolt.Bucket{}
	for name := range reserved {
		own[name] = tx.Bucket([]byte(name))
	}
	return own
}

// written finds one of the ledger's buckets that was written to, moved or
// deleted. bbolt tells nobody, but keeps what it has to write as nodes.
func written(tx *bbolt.Tx, own map[string]*bbolt.Bucket) string {
	for name, b := range own {
		if tx.Bucket([]byte(name)) != b || reflect.ValueOf(b).Elem().FieldByName("nodes").Len() > 0 {
			return name
		}
	}
	return ""
}
