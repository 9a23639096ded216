package boltstore

import (
	"context"
	"errors"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// joinWait bounds how long a call looks for a holder, or becomes it.
const joinWait = 2 * time.Second

// Shared is an idem.Store that several processes of one user have in common.
// One of them holds the file and serves the others; when it ends, the next call
// of any other takes over. Safe for concurrent use.
type Shared struct {
	cfg Config

	mu     sync.Mutex
	store  idem.Store // *Store or *Client
	closed bool
}

var _ idem.Store = (*Shared)(nil)

// Join opens the ledger, or reaches the process that holds it. Errors are those
// of Open, but for ErrLocked, and ErrNoHolder when the file is held by a process
// that does not answer.
func Join(cfg Config) (*Shared, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Shared{cfg: cfg}
	if _, err := s.current(nil); err != nil {
		return nil, err
	}
	// Only the first one to come may start anew.
	s.cfg.NewLedger = false
	return s, nil
}

// Holds reports whether this process holds the file.
func (s *Shared) Holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.store.(*Store)
	return ok
}

// current returns the store to use. lost is the one that the caller found to
// have no holder; nil: none.
func (s *Shared) current(lost idem.Store) (idem.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, idem.ErrClosed
	}
	if s.store != nil && s.store != lost {
		return s.store, nil
	}
	next, err := s.find()
	if err != nil {
		return nil, err
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	s.store = next
	return next, nil
}

// find opens or dials until one of them works: a holder may be about to end, or
// about to listen.
func (s *Shared) find() (idem.Store, error) {
	cfg := s.cfg
	cfg.LockWait = lockRetry
	for end := time.Now().Add(joinWait); ; time.Sleep(2 * lockRetry) {
		if cfg.NoSocket {
			return Open(s.cfg)
		}
		c, err := dialClient(cfg.Path)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, ErrNoHolder) {
			return nil, err
		}
		st, oerr := Open(cfg)
		if oerr == nil {
			return st, nil
		}
		if !errors.Is(oerr, ErrLocked) {
			return nil, oerr
		}
		if time.Now().After(end) {
			return nil, errors.Join(err, oerr)
		}
	}
}

// try runs fn, and once more with another store if the first one had no holder
// and the request did not reach it. reads may be asked twice in any case.
func (s *Shared) try(reads bool, fn func(idem.Store) error) error {
	st, err := s.current(nil)
	if err != nil {
		return err
	}
	err = fn(st)
	if !errors.Is(err, ErrNoHolder) || (!reads && errors.Is(err, idem.ErrCommitUnknown)) {
		return err
	}
	if st, err = s.current(st); err != nil {
		return err
	}
	return fn(st)
}

// Load implements idem.Store.
func (s *Shared) Load(ctx context.Context, refs ...idem.Ref) (snap idem.Snapshot, err error) {
	err = s.try(true, func(st idem.Store) (err error) { snap, err = st.Load(ctx, refs...); return err })
	return snap, err
}

// Commit implements idem.Store.
func (s *Shared) Commit(ctx context.Context, c idem.Change) (stamp idem.Stamp, err error) {
	err = s.try(false, func(st idem.Store) (err error) { stamp, err = st.Commit(ctx, c); return err })
	return stamp, err
}

// List implements idem.Store.
func (s *Shared) List(ctx context.Context, q idem.Query) (page idem.Page, err error) {
	err = s.try(true, func(st idem.Store) (err error) { page, err = st.List(ctx, q); return err })
	return page, err
}

// Watch implements idem.Store.
func (s *Shared) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	return s.try(true, func(st idem.Store) error { return st.Watch(ctx, id, after) })
}

// Clock implements idem.Store.
func (s *Shared) Clock(ctx context.Context) (now idem.Instant, err error) {
	err = s.try(true, func(st idem.Store) (err error) { now, err = st.Clock(ctx); return err })
	return now, err
}

// Close implements idem.Store. Where this process holds the file, another one
// takes over.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.store.Close()
}
