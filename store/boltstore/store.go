package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Store is the ledger in the process that holds the file. Safe for concurrent
// use.
type Store struct {
	path     string
	id       ledgerID
	f        *os.File // bbolt's own; kept to let go of the lock of a broken store
	db       *bbolt.DB
	file     os.FileInfo // of f, to see when something else is at the path
	clock    *core.Clock
	leases   *core.Leases
	watchers *core.Watchers
	queue    queue
	srv      *server // nil: not served

	importing  sync.Mutex  // one Import at a time
	unfinished atomic.Bool // the rows are not all there: see Import

	closed    atomic.Bool
	broken    atomic.Pointer[error] // why nothing works any more
	closeOnce sync.Once
	closeErr  error
}

var _ idem.Store = (*Store)(nil)

// Path is the ledger's file, symbolic links resolved.
func (s *Store) Path() string { return s.path }

// ready is checked before every access.
func (s *Store) ready(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if s.unfinished.Load() {
		return unfinished(s.path)
	}
	return nil
}

// usable is what ready asks for and an import can do with.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closed.Load():
		return idem.ErrClosed
	}
	return s.intact()
}

func (s *Store) intact() error {
	if why := s.broken.Load(); why != nil {
		return fmt.Errorf("%w: %s: %w", ErrBroken, s.path, *why)
	}
	return nil
}

// fail makes the store refuse everything from now on.
func (s *Store) fail(why error) { s.broken.CompareAndSwap(nil, &why) }

// trap turns a panic of bbolt, or a fault in the mapped file, into ErrDamaged.
// The file was sound when it was opened, so something else has changed it. It
// must be deferred itself.
func trap(path string, err *error) {
	if p := recover(); p != nil {
		*err = damaged(path, "reading it failed: %v", p)
	}
}

// read runs fn in a read transaction.
func (s *Store) read(fn func(*bbolt.Tx) error) (err error) {
	defer s.observe(&err)
	defer trap(s.path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return s.db.View(fn)
}

// update runs fn in a write transaction and commits it, unless fn says that
// nothing was written. bbolt's own Update is not used: where fn panics it scans
// the file, on a goroutine that nobody can guard.
func (s *Store) update(fn func(*bbolt.Tx) (dirty bool, err error)) (err error) {
	defer s.observe(&err)
	defer trap(s.path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if err := s.inPlace(); err != nil {
		return err
	}
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	dirty, err := fn(tx)
	if err != nil || !dirty {
		_ = tx.Rollback() // nothing was written to the file
		return err
	}
	return s.committed(tx.Commit())
}

// inPlace refuses to write into a file that was deleted or moved away: nobody
// would find what is recorded in it.
func (s *Store) inPlace() error {
	now, err := os.Stat(s.path)
	if err == nil && os.SameFile(s.file, now) {
		return nil
	}
	return fmt.Errorf("%w: %s was deleted or replaced while it was in use; put it back, or stop this process", ErrGone, s.path)
}

// committed says what an error of bbolt's commit means: see the package
// documentation.
func (s *Store) committed(err error) error {
	var path *os.PathError
	switch {
	case err == nil:
		return nil
	case noSpace(err) && !isErrno(err):
		return translate(s.path, err)
	case errors.As(err, &path), isErrno(err):
		s.fail(err)
		return fmt.Errorf("%w: %s: %w", idem.ErrCommitUnknown, s.path, err)
	}
	// Growing the file failed, or bbolt refused: before anything was written.
	return translate(s.path, err)
}

// isErrno reports a bare error number: bbolt returns those of a sync as they
// are, those of a write inside an os.PathError.
func isErrno(err error) bool {
	var no syscall.Errno
	return errors.As(err, &no) && errors.Unwrap(err) == nil
}

// observe gives errors of access their meaning and remembers damage.
func (s *Store) observe(err *error) {
	switch {
	case *err == nil:
	case errors.Is(*err, bolterrors.ErrDatabaseNotOpen):
		*err = idem.ErrClosed
	case errors.Is(*err, codec.ErrMalformed) && !errors.Is(*err, ErrDamaged):
		*err = damaged(s.path, "%v", *err)
	case errors.Is(*err, ErrDamaged):
		s.fail(*err)
	}
}

// Load implements idem.Store.
func (s *Store) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return idem.Snapshot{}, err
	}
	snap := idem.Snapshot{Rows: make([]idem.Row, 0, len(refs))}
	err := s.read(func(tx *bbolt.Tx) error {
		snap.Now = s.clock.Now()
		for _, ref := range refs {
			b, err := view{tx}.Get(ref)
			if err != nil {
				return err
			}
			if b == nil {
				continue
			}
			row, err := codec.Open(ref, b)
			if err != nil {
				return err
			}
			if row.Operation != nil {
				s.leases.Overlay(ref.ID, row.Operation)
			}
			snap.Rows = append(snap.Rows, row)
		}
		return nil
	})
	if err != nil {
		return idem.Snapshot{}, err
	}
	return snap, nil
}

// List implements idem.Store. A page holds at most 1000 records and about 8 MiB.
func (s *Store) List(ctx context.Context, q idem.Query) (page idem.Page, err error) {
	if err := s.ready(ctx); err != nil {
		return idem.Page{}, err
	}
	err = s.read(func(tx *bbolt.Tx) (err error) {
		page, err = core.List(ctx, view{tx}, &q, s.leases)
		page.Now = s.clock.Now()
		return err
	})
	return page, err
}

// Watch implements idem.Store.
func (s *Store) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	return s.watchers.Wait(ctx, id, after, func() (v idem.Version, err error) {
		if err := s.ready(ctx); err != nil {
			return 0, err
		}
		err = s.read(func(tx *bbolt.Tx) (err error) {
			b, err := view{tx}.Get(idem.Ref{Kind: idem.KindOperation, ID: id})
			if err == nil && b != nil {
				v, err = codec.Version(b)
			}
			return err
		})
		return v, err
	})
}

// Clock implements idem.Store.
func (s *Store) Clock(ctx context.Context) (idem.Instant, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	return s.clock.Now(), nil
}

// Close ends serving, waits for a commit under way, stores the clock and lets go
// of the file. Commits that still queue get ErrClosed.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.closed.Store(true)
	s.watchers.Close()
	if s.srv != nil {
		s.srv.close()
		_ = os.Remove(pidPath(s.path))
	}
	if s.intact() == nil {
		// So that the clock does not go back behind what was read from it. On a
		// full disk it may: nothing that was recorded is later than what is stored.
		_ = s.update(func(tx *bbolt.Tx) (bool, error) { return true, putTime(tx, s.clock.Now()) })
	}
	if s.intact() != nil {
		// bbolt may have lost its locks in a panic, so its Close could wait for
		// ever. The mapping stays until the process ends.
		_ = syscall.Flock(int(s.f.Fd()), syscall.LOCK_UN)
		return s.f.Close()
	}
	return s.db.Close()
}
