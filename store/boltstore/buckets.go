package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// One bucket per kind of row, keyed by the 20-byte id; one per index, whose
// values are empty; and one for the ledger's own few values, small enough for
// bbolt to keep it inside the root page, which every commit writes anyway.
var (
	rowBuckets = map[idem.Kind][]byte{
		idem.KindOperation: []byte("operation"), idem.KindKey: []byte("key"), idem.KindSlot: []byte("slot"),
		idem.KindDelivery: []byte("delivery"), idem.KindAlias: []byte("alias"), idem.KindCommand: []byte("command"), idem.KindTask: []byte("task"),
	}
	indexBuckets = map[core.Index][]byte{
		core.IndexID: rowBuckets[idem.KindOperation], core.IndexDue: []byte("by-due"),
		core.IndexState: []byte("by-state"), core.IndexTask: []byte("by-task"),
	}
	metaBucket = []byte("ledger")

	metaFormat = []byte("format") // 1 byte
	metaID     = []byte("id")     // 16 bytes
	metaTime   = []byte("time")   // 8 bytes, big-endian: the highest moment stored
	metaImport = []byte("import") // there while an import is under way
)

// reserved are the names of the ledger's own buckets.
var reserved = func() map[string]bool {
	m := map[string]bool{string(metaBucket): true}
	for _, name := range bucketNames() {
		m[string(name)] = true
	}
	return m
}()

// format is of the file as a whole; rows carry one of their own.
const format = 1

// view reads rows in a transaction of either kind.
type view struct{ tx *bbolt.Tx }

func (v view) Get(ref idem.Ref) ([]byte, error) {
	name, ok := rowBuckets[ref.Kind]
	if !ok {
		return nil, fmt.Errorf("boltstore: unknown kind of row %d", ref.Kind)
	}
	return v.tx.Bucket(name).Get(ref.ID[:]), nil
}

func (v view) Ascend(ix core.Index, prefix, after []byte, fn func([]byte) (bool, error)) error {
	c := v.tx.Bucket(indexBuckets[ix]).Cursor()
	k, _ := c.Seek(after)
	if bytes.Equal(k, after) && k != nil {
		k, _ = c.Next()
	}
	for ; k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if more, err := fn(k); err != nil || !more {
			return err
		}
	}
	return nil
}

// write carries a planned write out. Index entries that stay are not touched.
func (v view) write(w *core.Write) error {
	b := v.tx.Bucket(rowBuckets[w.Ref.Kind])
	var err error
	if w.Sealed == nil {
		err = b.Delete(w.Ref.ID[:])
	} else {
		err = b.Put(w.Ref.ID[:], w.Sealed)
	}
	if err != nil || w.Ref.Kind != idem.KindOperation {
		return err
	}
	for _, ix := range core.Indexes() {
		if err := v.reindex(ix, w); err != nil {
			return err
		}
	}
	return nil
}

func (v view) reindex(ix core.Index, w *core.Write) error {
	var before, after []byte
	if w.Old != nil {
		before = core.IndexKey(ix, w.Ref.ID, w.Old)
	}
	if w.New != nil {
		after = core.IndexKey(ix, w.Ref.ID, w.New)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	b := v.tx.Bucket(indexBuckets[ix])
	// Most keys are later than those before them, so a page that was split is
	// rarely filled up again.
	b.FillPercent = 0.9
	if before != nil {
		if err := b.Delete(before); err != nil {
			return err
		}
	}
	if after != nil {
		return b.Put(after, nil)
	}
	return nil
}

// head is what the meta bucket says.
type head struct {
	id         ledgerID
	time       idem.Instant
	unfinished bool // an import did not end
	noTasks    bool // made before there were rows of tasks
}

// readHead returns ok false for a file that holds no bucket at all.
func readHead(tx *bbolt.Tx, path string) (h head, ok bool, err error) {
	b := tx.Bucket(metaBucket)
	if b == nil {
		if k, _ := tx.Cursor().First(); k == nil {
			return h, false, nil
		}
		return h, false, damaged(path, "a database of another program")
	}
	f, id, t := b.Get(metaFormat), b.Get(metaID), b.Get(metaTime)
	if len(f) != 1 || len(id) != len(h.id) || len(t) != 8 {
		return h, false, damaged(path, "its own values are missing")
	}
	if f[0] > format {
		return h, false, fmt.Errorf("%w: %s: format %d, this program reads up to %d: use a newer one", ErrFormat, path, f[0], format)
	}
	for _, name := range bucketNames() {
		if tx.Bucket(name) == nil && bytes.Equal(name, rowBuckets[idem.KindTask]) {
			h.noTasks = true
		} else if tx.Bucket(name) == nil {
			return h, false, damaged(path, "bucket %q is missing", name)
		}
	}
	copy(h.id[:], id)
	h.time = idem.Instant(binary.BigEndian.Uint64(t))
	h.unfinished = b.Get(metaImport) != nil
	return h, true, nil
}

func bucketNames() [][]byte {
	var names [][]byte
	for _, k := range idem.Kinds() {
		names = append(names, rowBuckets[k])
	}
	for _, ix := range core.Indexes() {
		names = append(names, indexBuckets[ix])
	}
	return names
}

// initialise makes an empty ledger.
func initialise(tx *bbolt.Tx, h head) error {
	for _, name := range bucketNames() {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucket(metaBucket)
	if err != nil {
		return err
	}
	if err := b.Put(metaFormat, []byte{format}); err != nil {
		return err
	}
	if err := b.Put(metaID, h.id[:]); err != nil {
		return err
	}
	return putTime(tx, h.time)
}

func putTime(tx *bbolt.Tx, t idem.Instant) error {
	return tx.Bucket(metaBucket).Put(metaTime, binary.BigEndian.AppendUint64(nil, uint64(t)))
}
