package boltstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Config configures Open and Join.
type Config struct {
	// Path of the file. Its directory is made, mode 0700, if it is missing.
	Path string
	// NewLedger permits an empty ledger where one existed before. A file that
	// holds a ledger is opened as ever, and a damaged one is not touched.
	NewLedger bool
	// Now reads the wall clock; nil: the machine's.
	Now func() time.Time
	// LockWait is how long Open waits for another process to let go of the file;
	// 0: half a second.
	LockWait time.Duration
	// LeaseGrace is how long leases that were held when the ledger was last open
	// are honoured at least, counted from Open. Their holders may live on and
	// have extended them in the memory of a process that has ended; 0: no longer
	// than what is stored.
	LeaseGrace time.Duration
	// ForImport also opens a ledger in which an import did not end, for Import
	// and nothing else. Without it that is ErrUnfinished.
	ForImport bool
	// NoSocket keeps the ledger to this process.
	NoSocket bool

	floor idem.Instant // the ledger's clock was there already
}

func (c *Config) check() (err error) {
	switch {
	case c.Path == "":
		return errors.New("boltstore: Config.Path is empty")
	case c.LockWait < 0:
		return errors.New("boltstore: Config.LockWait is negative")
	case c.LeaseGrace < 0:
		return errors.New("boltstore: Config.LeaseGrace is negative")
	}
	if c.LockWait == 0 {
		c.LockWait = time.Second / 2
	}
	c.Path, err = resolve(c.Path)
	return err
}

// Open opens the ledger, or makes one where none existed, and serves it to the
// other processes of this user. It returns one of this package's sentinels,
// wrapped, and never waits longer than LockWait for another process.
func Open(cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, translate(cfg.Path, err)
	}
	// The name may have got a resolvable directory just now.
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, err
	}
	cfg.Path = path
	mark, marked, err := readMarker(path)
	if err != nil {
		return nil, translate(markerPath(path), err)
	}
	fresh, err := mayOpen(&cfg, marked)
	if err != nil {
		return nil, err
	}
	f, err := locked(path, os.O_RDWR|map[bool]int{true: os.O_CREATE}[fresh], syscall.LOCK_EX, cfg.LockWait)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			return nil, err
		}
		return nil, translate(path, err)
	}
	o := opening{cfg: &cfg, f: f, mark: mark, marked: marked}
	s, err := o.run()
	if err != nil {
		o.undo()
		return nil, err
	}
	return s, nil
}

// mayOpen reports whether the file may have to be created. It looks before
// anything is touched.
func mayOpen(cfg *Config, marked bool) (create bool, err error) {
	_, err = os.Stat(cfg.Path)
	switch {
	case err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, translate(cfg.Path, err)
	case marked && !cfg.NewLedger:
		return false, gone(cfg.Path, "the file is missing")
	}
	return true, nil
}

func gone(path, what string) error {
	return fmt.Errorf("%w: %s: %s, but %s says that a ledger existed here; restore it from a backup, "+
		"or start a new one (--new-ledger), which forgets every recorded effect", ErrGone, path, what, markerPath(path))
}

// opening is the state of an Open after it got the lock.
type opening struct {
	cfg    *Config
	f      *os.File
	mark   ledgerID
	marked bool

	created bool // the file was empty
	db      *bbolt.DB
	srv     *server
}

// undo leaves the file as it was found.
func (o *opening) undo() {
	if o.created {
		_ = os.Remove(o.cfg.Path)
	}
	if o.srv != nil {
		o.srv.close()
	}
	if o.db != nil {
		_ = o.db.Close() // closes f
	}
	_ = o.f.Close()
}

func (o *opening) run() (*Store, error) {
	path := o.cfg.Path
	info, err := o.f.Stat()
	if err != nil {
		return nil, translate(path, err)
	}
	switch {
	case info.Mode().IsRegular() && info.Size() == 0 && o.marked && !o.cfg.NewLedger:
		return nil, gone(path, "the file is empty")
	case info.Mode().IsRegular() && info.Size() == 0:
		o.created = true
	default:
		rep, err := verify(o.f, path)
		if err != nil {
			return nil, err
		}
		if rep.BadMeta {
			return nil, badMeta(path)
		}
	}
	if o.db, err = openBolt(o.f, path, false); err != nil {
		return nil, err
	}
	file, err := o.f.Stat()
	if err != nil {
		return nil, translate(path, err)
	}
	s := &Store{path: path, f: o.f, db: o.db, file: file, leases: core.NewLeases(), watchers: core.NewWatchers()}
	h, err := o.ledger(s)
	if err != nil {
		return nil, err
	}
	s.id, s.clock = h.id, core.NewClock(o.cfg.Now, max(h.time, o.cfg.floor))
	if err := s.grace(o.cfg.LeaseGrace); err != nil {
		return nil, err
	}
	if o.cfg.NoSocket {
		return s, nil
	}
	_ = writePID(path) // a hint only
	if o.srv, err = serve(s); err != nil {
		return nil, translate(path+" (socket)", err)
	}
	s.srv = o.srv
	return s, nil
}

// ledger reads the ledger's own values, or makes them, and sees to the marker.
func (o *opening) ledger(s *Store) (h head, err error) {
	var ok bool
	err = s.read(func(tx *bbolt.Tx) (err error) {
		h, ok, err = readHead(tx, s.path)
		return err
	})
	if err != nil {
		return h, err
	}
	if !ok {
		if o.marked && !o.cfg.NewLedger {
			return h, gone(s.path, "the file holds no ledger")
		}
		_, _ = rand.Read(h.id[:]) // never fails
		if err := s.update(func(tx *bbolt.Tx) (bool, error) { return true, initialise(tx, h) }); err != nil {
			return h, err
		}
		if err := syncDir(filepath.Dir(s.path)); err != nil {
			return h, translate(s.path, err)
		}
	}
	if h.noTasks {
		err := s.update(func(tx *bbolt.Tx) (bool, error) {
			_, err := tx.CreateBucket(rowBuckets[idem.KindTask])
			return true, err
		})
		if err != nil {
			return h, err
		}
	}
	if h.unfinished && !o.cfg.ForImport {
		return h, unfinished(s.path)
	}
	s.unfinished.Store(h.unfinished)
	if o.marked && o.mark == h.id {
		return h, nil
	}
	if o.marked && !o.cfg.NewLedger {
		return h, gone(s.path, "the file is another ledger")
	}
	return h, translate(markerPath(s.path), writeMarker(s.path, h.id))
}

// openBolt hands bbolt the file that was locked and verified.
func openBolt(f *os.File, path string, readOnly bool) (db *bbolt.DB, err error) {
	defer trap(path, &err)
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Second / 4, // the lock is ours already
		// The free list is neither stored nor searched in order: the cost of a
		// commit does not grow with what was ever deleted.
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
		ReadOnly: readOnly, NoStatistics: true,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	if err != nil {
		return nil, translate(path, err)
	}
	return db, nil
}

// grace honours for a while the leases of holders that may have outlived the
// process that held the ledger before.
func (s *Store) grace(d time.Duration) error {
	if d == 0 {
		return nil
	}
	end := s.clock.Now().Add(d)
	return s.read(func(tx *bbolt.Tx) error {
		q := idem.Query{Order: idem.ByState, State: idem.StateStarted}
		return eachOperation(tx, q, func(r *idem.Record, id idem.ID) error {
			if r.Lease.End != 0 {
				s.leases.Extend(id, r.Lease.Token, end)
			}
			return nil
		})
	})
}
