package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The layout of a bbolt file, version 2, as far as the verifier reads it. All
// integers are in the byte order of the machine that wrote the file.
//
//	page    id 8 | flags 2 | count 2 | overflow 4
//	meta    magic 4 | version 4 | page size 4 | flags 4 | root 8 | sequence 8 |
//	        freelist 8 | high water 8 | transaction 8 | FNV-1a of these 8
//	branch  (position 4 | key size 4 | child 8) per element
//	leaf    (flags 4 | position 4 | key size 4 | value size 4) per element
//	bucket  root 8 | sequence 8 | an inline page if root is 0
const (
	pageHeader   = 16
	elementSize  = 16
	bucketHeader = 16
	metaSize     = 64
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	noFreelist   = ^uint64(0)
	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf element
	maxDepth     = 64
)

var order = binary.NativeEndian

type metaPage struct {
	pageSize uint32
	root     uint64
	freelist uint64
	high     uint64 // pages from here on were never used
	txid     uint64
}

func parseMeta(b []byte, id uint64) (metaPage, error) {
	if len(b) < pageHeader+metaSize {
		return metaPage{}, errors.New("cut short")
	}
	if order.Uint64(b) != id || order.Uint16(b[8:]) != flagMeta {
		return metaPage{}, errors.New("not a meta page")
	}
	m := b[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(m[:56])
	switch {
	case order.Uint32(m) != boltMagic:
		return metaPage{}, errors.New("wrong magic number")
	case order.Uint32(m[4:]) != boltVersion:
		return metaPage{}, fmt.Errorf("file version %d, want %d", order.Uint32(m[4:]), boltVersion)
	case order.Uint64(m[56:]) != sum.Sum64():
		return metaPage{}, errors.New("wrong checksum")
	}
	p := metaPage{order.Uint32(m[8:]), order.Uint64(m[16:]), order.Uint64(m[32:]), order.Uint64(m[40:]), order.Uint64(m[48:])}
	if p.pageSize < 1024 || p.pageSize > 1<<16 || p.pageSize&(p.pageSize-1) != 0 {
		return metaPage{}, fmt.Errorf("page size %d", p.pageSize)
	}
	return p, nil
}

// walker visits every page that is reachable from a root and checks all that
// bbolt takes for granted, since bbolt panics, or reads past the mapping, where
// it does not hold. It reads with ReadAt: no fault can come of it.
type walker struct {
	r     io.ReaderAt
	size  int64 // of a page
	high  uint64
	seen  []uint64 // one bit a page
	pages uint64
	bufs  [][]byte // one per depth: bounds of a child are keys of its parent

	// item is called for each key and value outside of the root bucket, with the
	// name of the bucket in it that holds them. The bytes are valid during the
	// call.
	item func(bucket string, key, value []byte) error
}

func newWalker(r io.ReaderAt, m metaPage) *walker {
	return &walker{r: r, size: int64(m.pageSize), high: m.high, seen: make([]uint64, m.high/64+1)}
}

// claim notes that the pages are in use, each once.
func (w *walker) claim(first, n uint64) error {
	if first < 2 || first >= w.high || n > w.high-first {
		return fmt.Errorf("page %d (%d pages) is outside of the file", first, n)
	}
	for id := first; id < first+n; id++ {
		if w.seen[id/64]&(1<<(id%64)) != 0 {
			return fmt.Errorf("page %d is reached twice", id)
		}
		w.seen[id/64] |= 1 << (id % 64)
	}
	w.pages += n
	return nil
}

// read returns a page with what overflows from it.
func (w *walker) read(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= w.high {
		return nil, fmt.Errorf("page %d is outside of the file", id)
	}
	for len(w.bufs) <= depth {
		w.bufs = append(w.bufs, make([]byte, w.size))
	}
	buf := w.bufs[depth][:w.size]
	if _, err := w.r.ReadAt(buf, int64(id)*w.size); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	if got := order.Uint64(buf); got != id {
		return nil, fmt.Errorf("page %d calls itself %d", id, got)
	}
	n := uint64(order.Uint32(buf[12:])) + 1
	if err := w.claim(id, n); err != nil {
		return nil, err
	}
	if n == 1 {
		return buf, nil
	}
	if need := int64(n) * w.size; int64(cap(buf)) < need {
		buf = append(make([]byte, 0, need), buf...)
		w.bufs[depth] = buf
	}
	buf = buf[:int64(n)*w.size]
	if _, err := w.r.ReadAt(buf[w.size:], int64(id)*w.size+w.size); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return buf, nil
}

// tree checks the page and all below it; keys are in [low, high), nil: no bound.
func (w *walker) tree(id uint64, bucket string, low, high []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d: the tree is deeper than %d", id, maxDepth)
	}
	b, err := w.read(id, depth)
	if err != nil {
		return err
	}
	switch flags := order.Uint16(b[8:]); flags {
	case flagBranch:
		return w.branch(b, id, bucket, low, high, depth)
	case flagLeaf:
		return w.leaf(b, id, bucket, low, high, depth)
	default:
		return fmt.Errorf("page %d has the type %#x", id, flags)
	}
}

// element cuts a key and its value out of a page and checks the key's place.
func element(b []byte, id uint64, i, count int, pos, ksize, vsize uint32) (key, value []byte, err error) {
	start := int64(pageHeader+i*elementSize) + int64(pos)
	end := start + int64(ksize) + int64(vsize)
	if start < int64(pageHeader+count*elementSize) || end > int64(len(b)) || ksize == 0 {
		return nil, nil, fmt.Errorf("page %d: element %d lies outside of it", id, i)
	}
	return b[start : start+int64(ksize)], b[start+int64(ksize) : end], nil
}

// between checks the order of keys: not before low, after prev, before high.
func between(id uint64, i int, key, low, prev, high []byte) error {
	if (prev != nil && bytes.Compare(key, prev) <= 0) || (low != nil && bytes.Compare(key, low) < 0) ||
		(high != nil && bytes.Compare(key, high) >= 0) {
		return fmt.Errorf("page %d: the key of element %d is out of order", id, i)
	}
	return nil
}

func elements(b []byte, id uint64) (int, error) {
	count := int(order.Uint16(b[10:]))
	if pageHeader+count*elementSize > len(b) {
		return 0, fmt.Errorf("page %d: %d elements do not fit", id, count)
	}
	return count, nil
}

func (w *walker) branch(b []byte, id uint64, bucket string, low, high []byte, depth int) error {
	count, err := elements(b, id)
	if err != nil {
		return err
	}
	if count == 0 {
		return fmt.Errorf("page %d: a branch without elements", id)
	}
	at := func(i int) (key []byte, child uint64, err error) {
		e := b[pageHeader+i*elementSize:]
		key, _, err = element(b, id, i, count, order.Uint32(e), order.Uint32(e[4:]), 0)
		return key, order.Uint64(e[8:]), err
	}
	var prev []byte
	for i := range count {
		key, child, err := at(i)
		if err != nil {
			return err
		}
		if err := between(id, i, key, low, prev, high); err != nil {
			return err
		}
		next := high
		if i+1 < count {
			if next, _, err = at(i + 1); err != nil {
				return err
			}
		}
		if err := w.tree(child, bucket, key, next, depth+1); err != nil {
			return err
		}
		prev = key
	}
	return nil
}

func (w *walker) leaf(b []byte, id uint64, bucket string, low, high []byte, depth int) error {
	count, err := elements(b, id)
	if err != nil {
		return err
	}
	var prev []byte
	for i := range count {
		e := b[pageHeader+i*elementSize:]
		key, value, err := element(b, id, i, count, order.Uint32(e[4:]), order.Uint32(e[8:]), order.Uint32(e[12:]))
		if err != nil {
			return err
		}
		if err := between(id, i, key, low, prev, high); err != nil {
			return err
		}
		prev = key
		switch {
		case order.Uint32(e)&flagBucket != 0:
			if reserved[bucket] {
				return fmt.Errorf("page %d: a bucket inside of bucket %q", id, bucket)
			}
			err = w.bucket(value, id, cmp.Or(bucket, string(key)), depth)
		case bucket == "":
			return fmt.Errorf("page %d: a value outside of any bucket", id)
		case w.item != nil:
			err = w.item(bucket, key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a nested bucket: a tree of its own, or a leaf page in the value.
func (w *walker) bucket(value []byte, id uint64, name string, depth int) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("page %d: the header of bucket %q is cut", id, name)
	}
	if root := order.Uint64(value); root != 0 {
		return w.tree(root, name, nil, nil, depth+1)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != flagLeaf {
		return fmt.Errorf("page %d: the inline page of bucket %q is not a leaf", id, name)
	}
	return w.leaf(inline, id, name, nil, nil, depth+1)
}

// freelist checks a stored free list. This store never writes one, but a file
// that was just created has one, as have files other programs touched.
func (w *walker) freelist(id uint64) error {
	if id == noFreelist {
		return nil
	}
	b, err := w.read(id, 0)
	if err != nil {
		return err
	}
	if flags := order.Uint16(b[8:]); flags != flagFreelist {
		return fmt.Errorf("page %d is not a free list but has the type %#x", id, flags)
	}
	ids, count := b[pageHeader:], uint64(order.Uint16(b[10:]))
	if count == 0xffff && len(ids) >= 8 {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return fmt.Errorf("page %d: a free list of %d pages does not fit", id, count)
	}
	for i := range count {
		if err := w.claim(order.Uint64(ids[i*8:]), 1); err != nil {
			return fmt.Errorf("free list: %w", err)
		}
		w.pages-- // free, but nothing else may reach it
	}
	return nil
}
