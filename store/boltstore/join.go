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
// of any other takes over. A holder that lives and does not answer keeps the file:
// calls are ErrNoHolder until it answers or ends. Safe for concurrent use.
type Shared struct {
	cfg    Config
	client *Client // to whoever holds the file

	mu     sync.Mutex
	own    *Store  // this process holds it; nil: another one does
	search *search // nil: nobody looks
	closed bool
}

var _ idem.Store = (*Shared)(nil)

// search looks for a holder, for all who wait for one.
type search struct {
	done chan struct{}
	err  error
}

// Join opens the ledger, or reaches the process that holds it. Errors are those
// of Open, but for ErrLocked, and ErrNoHolder when the file is held by a process
// that does not answer.
func Join(cfg Config) (*Shared, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Shared{cfg: cfg, client: &Client{path: cfg.Path}}
	var err error
	if s.own, err = s.find(); err != nil {
		return nil, err
	}
	if s.own != nil {
		s.client.path = s.own.path // its directory may have been made just now
	}
	// Only the first one to come may start anew.
	s.cfg.NewLedger = false
	return s, nil
}

// Holds reports whether this process holds the file.
func (s *Shared) Holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own != nil
}

// current returns the store to use.
func (s *Shared) current() (idem.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, idem.ErrClosed
	case s.own != nil:
		return s.own, nil
	}
	return s.client, nil
}

// seek waits until a holder is found, or this process is it.
func (s *Shared) seek(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return idem.ErrClosed
	}
	if s.own != nil {
		s.mu.Unlock()
		return nil
	}
	now := s.search
	if now == nil {
		now = &search{done: make(chan struct{})}
		s.search = now
		go s.look(now)
	}
	s.mu.Unlock()
	select {
	case <-now.done:
		return now.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Shared) look(now *search) {
	own, err := s.find()
	s.mu.Lock()
	s.search, now.err = nil, err
	if own != nil {
		s.own = own
	}
	s.mu.Unlock()
	close(now.done)
}

// find opens or dials until one of them works: a holder may be about to end, or
// about to listen. nil: another process holds the file, and answers.
func (s *Shared) find() (*Store, error) {
	if s.cfg.NoSocket {
		return Open(s.cfg)
	}
	cfg := s.cfg
	cfg.LockWait = lockRetry
	for end := time.Now().Add(joinWait); ; time.Sleep(2 * lockRetry) {
		_, err := s.client.session(context.Background())
		if err == nil || !errors.Is(err, ErrNoHolder) || errors.Is(err, errSilent) {
			return nil, err
		}
		cfg.floor = s.client.told() // the clock does not go back with a change of the holder
		own, oerr := Open(cfg)
		if oerr == nil || !errors.Is(oerr, ErrLocked) {
			return own, oerr
		}
		if time.Now().After(end) {
			return nil, errors.Join(err, oerr)
		}
	}
}

// try runs fn, and once more with the next holder if there was none and the
// request did not reach it. reads may be asked twice in any case.
func (s *Shared) try(ctx context.Context, reads bool, fn func(idem.Store) error) error {
	st, err := s.current()
	if err != nil {
		return err
	}
	err = fn(st)
	switch {
	case !errors.Is(err, ErrNoHolder), errors.Is(err, errSilent):
		return err
	case !reads && errors.Is(err, idem.ErrCommitUnknown):
		return err
	}
	if err := s.seek(ctx); err != nil {
		return err
	}
	if st, err = s.current(); err != nil {
		return err
	}
	return fn(st)
}

// Load implements idem.Store.
func (s *Shared) Load(ctx context.Context, refs ...idem.Ref) (snap idem.Snapshot, err error) {
	err = s.try(ctx, true, func(st idem.Store) (err error) { snap, err = st.Load(ctx, refs...); return err })
	return snap, err
}

// Commit implements idem.Store.
func (s *Shared) Commit(ctx context.Context, c idem.Change) (stamp idem.Stamp, err error) {
	err = s.try(ctx, false, func(st idem.Store) (err error) { stamp, err = st.Commit(ctx, c); return err })
	return stamp, err
}

// List implements idem.Store.
func (s *Shared) List(ctx context.Context, q idem.Query) (page idem.Page, err error) {
	err = s.try(ctx, true, func(st idem.Store) (err error) { page, err = st.List(ctx, q); return err })
	return page, err
}

// Watch implements idem.Store.
func (s *Shared) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	return s.try(ctx, true, func(st idem.Store) error { return st.Watch(ctx, id, after) })
}

// Clock implements idem.Store.
func (s *Shared) Clock(ctx context.Context) (now idem.Instant, err error) {
	err = s.try(ctx, true, func(st idem.Store) (err error) { now, err = st.Clock(ctx); return err })
	return now, err
}

// Close implements idem.Store. Where this process holds the file, another one
// takes over.
func (s *Shared) Close() error {
	s.mu.Lock()
	now := s.search
	s.closed = true
	s.mu.Unlock()
	if now != nil {
		<-now.done
	}
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	err := s.client.Close()
	if own != nil {
		err = errors.Join(err, own.Close())
	}
	return err
}
