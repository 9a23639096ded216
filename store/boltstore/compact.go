package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// compactTx bounds one transaction of the copy, bytes of keys and values.
const compactTx = 16 << 20

// Compact copies a ledger that nobody holds into a fresh file without free
// pages, and puts that in its place by one rename: at any moment there is either
// the old file or the new one, whole. It is also how to go on with a ledger of
// which one meta page is damaged: the copy is of what the other one knows. The
// first Report is of the old file, the second of the new one.
func Compact(path string) (before, after Report, err error) {
	path, err = resolve(path)
	if err != nil {
		return before, after, err
	}
	src, err := locked(path, os.O_RDWR, syscall.LOCK_EX, time.Second/2)
	if err != nil {
		if errors.Is(err, ErrLocked) {
			return before, after, err
		}
		return before, after, translate(path, err)
	}
	defer func() { _ = src.Close() }() // last of all: it holds the lock
	if before, err = verify(src, path); err != nil {
		return before, after, err
	}
	temp := path + ".compact"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return before, after, translate(temp, err)
	}
	defer func() { _ = os.Remove(temp) }() // gone if it was renamed
	if err := copyInto(temp, src, path); err != nil {
		return before, after, err
	}
	if after, err = VerifyRows(temp); err != nil {
		return before, after, fmt.Errorf("boltstore: the copy is not sound, the ledger was not changed: %w", err)
	}
	after.Path = path
	if err := os.Rename(temp, path); err != nil {
		return before, after, translate(path, err)
	}
	return before, after, translate(path, syncDir(filepath.Dir(path)))
}

func copyInto(temp string, src *os.File, path string) (err error) {
	defer trap(path, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	// A second handle on the same open file: bbolt closes the one it is given,
	// and the lock has to outlive it.
	fd, err := unix.FcntlInt(src.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return translate(path, err)
	}
	from, err := openBolt(os.NewFile(uintptr(fd), path), path, true)
	if err != nil {
		return err
	}
	// Read-only, bbolt does not unlock on close.
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := bbolt.Open(temp, 0o600, &bbolt.Options{
		Timeout: time.Second / 4, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoStatistics: true,
		NoSync: true, // one sync at the end is enough for a file nobody uses yet
	})
	if err != nil {
		return translate(temp, err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := bbolt.Compact(to, from, compactTx); err != nil {
		return translate(temp, err)
	}
	return translate(temp, to.Sync())
}
