package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// VerifyRows does what Verify does, then decodes every row and compares the
// indexes with the operations. It only reads.
func VerifyRows(path string) (rep Report, err error) {
	f, path, err := readLocked(path)
	if err != nil {
		return Report{Path: path}, err
	}
	defer func() { _ = f.Close() }()
	rep, err = verify(f, path)
	if err != nil {
		return rep, err
	}
	if rep.BadMeta {
		return rep, badMeta(path)
	}
	db, err := openBolt(f, path, true)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defer trap(path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = db.View(func(tx *bbolt.Tx) error {
		h, ok, err := readHead(tx, path)
		switch {
		case err != nil || !ok:
			return errors.Join(err, nothing(path, ok))
		case h.unfinished:
			return unfinished(path)
		}
		if err := checkRows(tx); err != nil {
			return damaged(path, "%v", err)
		}
		return nil
	})
	return rep, err
}

func nothing(path string, ok bool) error {
	if ok {
		return nil
	}
	return damaged(path, "it holds no ledger")
}

func checkRows(tx *bbolt.Tx) error {
	entries := map[core.Index]int{}
	for _, kind := range idem.Kinds() {
		err := tx.Bucket(rowBuckets[kind]).ForEach(func(k, v []byte) error {
			ref := idem.Ref{Kind: kind, ID: idem.ID(k)} // 20 bytes: verify has seen it
			row, err := codec.Open(ref, v)
			if err != nil || row.Operation == nil {
				return err
			}
			return checkIndexes(tx, ref.ID, row.Operation, entries)
		})
		if err != nil {
			return err
		}
	}
	// Every entry that should be there is. More of them would be too many.
	for _, ix := range core.Indexes() {
		n := 0
		if err := tx.Bucket(indexBuckets[ix]).ForEach(func(_, _ []byte) error { n++; return nil }); err != nil {
			return err
		}
		if n != entries[ix] {
			return fmt.Errorf("index %q has %d entries, the operations make %d", indexBuckets[ix], n, entries[ix])
		}
	}
	return nil
}

func checkIndexes(tx *bbolt.Tx, id idem.ID, r *idem.Record, entries map[core.Index]int) error {
	for _, ix := range core.Indexes() {
		key := core.IndexKey(ix, id, r)
		if key == nil {
			continue
		}
		entries[ix]++
		if k, _ := tx.Bucket(indexBuckets[ix]).Cursor().Seek(key); !bytes.Equal(k, key) {
			return fmt.Errorf("operation %s is missing in index %q", id, indexBuckets[ix])
		}
	}
	return nil
}

// eachOperation calls fn with every operation of a listing.
func eachOperation(tx *bbolt.Tx, q idem.Query, fn func(*idem.Record, idem.ID) error) error {
	none := core.NewLeases()
	for {
		page, ids, err := core.ListIDs(context.Background(), view{tx}, &q, none)
		if err != nil {
			return err
		}
		for i, r := range page.Records {
			if err := fn(r, ids[i]); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == nil {
			return nil
		}
	}
}
