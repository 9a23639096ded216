package boltstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// importRows and importBytes bound one transaction of an import.
const (
	importRows  = 1024
	importBytes = 4 << 20
)

// Import stores rows, at their own versions, into an empty ledger, raises the
// ledger's clock to now, and returns how many there were. The rows come in the
// order of Ref.Compare, each once, and belong to the store when they are yielded.
//
// It is all or nothing: after an error the ledger is empty again, and while an
// import runs, or after a crash in it, every other method and Open return
// ErrUnfinished. So a ledger of which a part is missing is never used; the next
// Import, with Config.ForImport, begins anew.
func (s *Store) Import(ctx context.Context, now idem.Instant, rows iter.Seq2[idem.Row, error]) (n int, err error) {
	if !s.importing.TryLock() {
		return 0, fmt.Errorf("boltstore: %s: another import is running", s.path)
	}
	defer s.importing.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	if err := s.beginImport(); err != nil {
		return 0, err
	}
	n, err = s.store(ctx, rows)
	if err == nil {
		err = s.endImport(now)
	}
	if err != nil {
		return 0, s.undoImport(err)
	}
	return n, nil
}

// beginImport marks the ledger as unfinished.
func (s *Store) beginImport() error {
	was := s.unfinished.Load()
	err := s.update(func(tx *bbolt.Tx) (bool, error) {
		m := tx.Bucket(metaBucket)
		switch {
		case m.Get(metaImport) != nil:
			if err := clearRows(tx); err != nil {
				return false, err
			}
		case !empty(tx):
			return false, core.NotEmpty("boltstore: " + s.path)
		}
		s.unfinished.Store(true)
		return true, m.Put(metaImport, []byte{1})
	})
	if err != nil {
		s.unfinished.Store(was)
	}
	return err
}

func (s *Store) store(ctx context.Context, rows iter.Seq2[idem.Row, error]) (int, error) {
	var in core.Incoming
	var batch []core.Write
	size := 0
	flush := func() error {
		err := s.update(func(tx *bbolt.Tx) (bool, error) {
			for i := range batch {
				// In order, so no page is filled up later.
				tx.Bucket(rowBuckets[batch[i].Ref.Kind]).FillPercent = 0.9
				if err := (view{tx}).write(&batch[i]); err != nil {
					return false, err
				}
			}
			return len(batch) > 0, nil
		})
		batch, size = batch[:0], 0
		return err
	}
	for row, err := range rows {
		if err == nil {
			err = s.usable(ctx)
		}
		if err != nil {
			return 0, err
		}
		sealed, err := in.Next(&row)
		if err != nil {
			return 0, err
		}
		batch = append(batch, core.Write{Ref: row.Ref, Sealed: sealed, New: row.Operation})
		size += len(sealed)
		if len(batch) >= importRows || size >= importBytes {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	return in.N, flush()
}

func (s *Store) endImport(now idem.Instant) error {
	err := s.update(func(tx *bbolt.Tx) (bool, error) {
		if err := tx.Bucket(metaBucket).Delete(metaImport); err != nil {
			return false, err
		}
		return true, putTime(tx, max(now, s.clock.Now()))
	})
	if err == nil {
		s.clock.Raise(now)
		s.unfinished.Store(false)
		s.watchers.WakeAll()
	}
	return err
}

// undoImport empties the ledger after cause. Where that fails too, the ledger
// stays unfinished.
func (s *Store) undoImport(cause error) error {
	if s.intact() != nil {
		return cause
	}
	err := s.update(func(tx *bbolt.Tx) (bool, error) {
		if err := clearRows(tx); err != nil {
			return false, err
		}
		return true, tx.Bucket(metaBucket).Delete(metaImport)
	})
	if err != nil {
		return errors.Join(cause, unfinished(s.path), err)
	}
	s.unfinished.Store(false)
	return cause
}

func empty(tx *bbolt.Tx) bool {
	for _, kind := range idem.Kinds() {
		if k, _ := tx.Bucket(rowBuckets[kind]).Cursor().First(); k != nil {
			return false
		}
	}
	return true
}

func clearRows(tx *bbolt.Tx) error {
	for _, name := range bucketNames() {
		if err := tx.DeleteBucket(name); err != nil {
			return err
		}
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return nil
}
