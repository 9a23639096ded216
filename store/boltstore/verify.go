package boltstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Report is what a verification saw.
type Report struct {
	Path     string
	Size     int64  // of the file, bytes
	PageSize int    // bytes
	Pages    uint64 // ever used
	InUse    uint64 // reachable; the others are free for what comes
	BadMeta  bool   // one of the two meta pages is damaged
	Rows     uint64 // whose checksum is right
}

// Verify checks a ledger without opening it: both meta pages, the length of the
// file, every page that is reachable, and the checksum of every row. It only
// reads, needs the ledger to be held by nobody (ErrLocked), and never panics.
// Damage is ErrDamaged; the Report says how far it came.
func Verify(path string) (Report, error) {
	f, path, err := readLocked(path)
	if err != nil {
		return Report{Path: path}, err
	}
	defer func() { _ = f.Close() }()
	rep, err := verify(f, path)
	if err == nil && rep.BadMeta {
		err = badMeta(path)
	}
	return rep, err
}

func badMeta(path string) error {
	return fmt.Errorf("%w: %s: one of its two meta pages cannot be read, so the latest commit may be missing; "+
		"restore it from a backup, or accept that with the compact command, which keeps all that the other one knows", ErrDamaged, path)
}

// readLocked opens a ledger for reading while nobody holds it.
func readLocked(path string) (*os.File, string, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, path, err
	}
	f, err := locked(path, os.O_RDONLY, syscall.LOCK_SH, time.Second/2)
	if err != nil && !errors.Is(err, ErrLocked) {
		err = fmt.Errorf("boltstore: %w", err)
	}
	return f, path, err
}

// verify checks a file that the caller has locked. A damaged meta page is
// reported, and an error only if both are.
func verify(f *os.File, path string) (Report, error) {
	rep := Report{Path: path}
	info, err := f.Stat()
	if err != nil {
		return rep, fmt.Errorf("boltstore: %w", err)
	}
	if !info.Mode().IsRegular() {
		return rep, damaged(path, "not a regular file")
	}
	rep.Size = info.Size()
	meta, bad, err := readMetas(f)
	if err != nil {
		return rep, damaged(path, "%v", err)
	}
	rep.PageSize, rep.Pages, rep.BadMeta = int(meta.pageSize), meta.high, bad
	if have := uint64(rep.Size) / uint64(meta.pageSize); meta.high < 4 || meta.high > have {
		return rep, damaged(path, "the file is cut: %d bytes, %d pages of %d bytes are in use", rep.Size, meta.high, meta.pageSize)
	}
	w := newWalker(f, meta)
	w.item = rep.item
	err = w.freelist(meta.freelist)
	if err == nil {
		err = w.tree(meta.root, "", nil, nil, 0)
	}
	rep.InUse = w.pages + 2
	if err != nil {
		return rep, damaged(path, "%v", err)
	}
	return rep, nil
}

// kinds finds the kind of the rows in a bucket.
var kinds = func() map[string]idem.Kind {
	m := map[string]idem.Kind{}
	for kind, name := range rowBuckets {
		m[string(name)] = kind
	}
	return m
}()

// item checks one row. A row that lost its name would be a row that is missing,
// and a missing row is an effect that may happen once more.
func (rep *Report) item(bucket string, key, value []byte) error {
	ref := idem.Ref{Kind: kinds[bucket]}
	if ref.Kind == 0 {
		return nil // an index, which VerifyRows compares, or the ledger's own values
	}
	if len(key) != len(ref.ID) {
		return fmt.Errorf("a key of %d bytes in bucket %q", len(key), bucket)
	}
	copy(ref.ID[:], key)
	if err := codec.Sound(ref, value); err != nil {
		return err
	}
	rep.Rows++
	return nil
}

// readMetas returns the meta page that bbolt will use.
func readMetas(r io.ReaderAt) (meta metaPage, bad bool, err error) {
	head := make([]byte, pageHeader+metaSize)
	read := func(id uint64, at int64) (metaPage, error) {
		if _, err := r.ReadAt(head, at); err != nil {
			return metaPage{}, errors.New("cut short")
		}
		return parseMeta(head, id)
	}
	m0, err0 := read(0, 0)
	if err0 != nil {
		// The first page would have told where the second one is.
		for size := int64(1024); size <= 1<<16; size *= 2 {
			if m1, err1 := read(1, size); err1 == nil && int64(m1.pageSize) == size {
				return m1, true, nil
			}
		}
		return metaPage{}, true, fmt.Errorf("not a ledger, or both meta pages are damaged: %w", err0)
	}
	m1, err1 := read(1, int64(m0.pageSize))
	switch {
	case err1 != nil:
		return m0, true, nil
	case m1.pageSize != m0.pageSize:
		return metaPage{}, true, errors.New("the meta pages disagree on the page size")
	case m1.txid > m0.txid:
		return m1, false, nil
	}
	return m0, false, nil
}
