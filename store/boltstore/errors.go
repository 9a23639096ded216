package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Sentinels for errors.Is. The error that wraps one names the file and what to
// do about it.
var (
	// ErrLocked: another process holds the ledger. Dial reaches it.
	ErrLocked = errors.New("boltstore: ledger is held by another process")
	// ErrDamaged: the file, or a row in it, is not what was written.
	ErrDamaged = errors.New("boltstore: ledger is damaged")
	// ErrGone: a ledger existed here, and the file is missing, empty or another
	// ledger's. It is never replaced silently: an empty ledger would let every
	// effect happen once more.
	ErrGone = errors.New("boltstore: ledger is gone")
	// ErrReadOnly: the file, its directory or its file system cannot be written.
	ErrReadOnly = errors.New("boltstore: ledger is read-only")
	// ErrFull: there is no space. Nothing was changed; what was recorded before
	// stays, and commits work again once there is space.
	ErrFull = errors.New("boltstore: no space left for the ledger")
	// ErrFormat: the ledger was written by a newer program.
	ErrFormat = errors.New("boltstore: ledger has a newer format")
	// ErrBroken: a write or sync failed in a way that leaves open what is on
	// disk. Nothing is read from or written to the ledger until it is opened
	// again.
	ErrBroken = errors.New("boltstore: ledger has to be opened again")
	// ErrUnfinished: an import into the ledger is under way or did not end, so
	// rows are missing. Only an import can go on with it.
	ErrUnfinished = errors.New("boltstore: an import into the ledger did not end")
	// ErrNoHolder: the process that holds the ledger is gone or does not answer.
	ErrNoHolder = errors.New("boltstore: no answer from the process that holds the ledger")
)

var (
	// errSilent: the holder lives, so nobody else can have the ledger.
	errSilent = errors.New("it does not answer; if it is stopped, let it go on, or end it")
	// errLate: nothing was done.
	errLate = fmt.Errorf("%w: it found the request too late", ErrNoHolder)
	// errClosing: nothing was done.
	errClosing = fmt.Errorf("%w: it is closing", ErrNoHolder)
)

func noHolder(path string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrNoHolder, path, err)
}

func silent(path string) error {
	return fmt.Errorf("%w: %s%s: %w", ErrNoHolder, path, holder(path), errSilent)
}

func damaged(path, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s; restore it from a backup, or move it away and start a new ledger (--new-ledger), which forgets every recorded effect",
		ErrDamaged, path, fmt.Sprintf(format, args...))
}

func unfinished(path string) error {
	return fmt.Errorf("%w: %s: run the import again, which begins anew, before anything else uses the ledger", ErrUnfinished, path)
}

// noSpace reports whether err is about space; bbolt keeps only the text of some.
func noSpace(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}

// translate gives the errors of the file system their sentinel.
func translate(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case noSpace(err):
		return fmt.Errorf("%w: %s: free some space and try again: %w", ErrFull, path, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s: make the file and its directory writable for this user: %w", ErrReadOnly, path, err)
	}
	return fmt.Errorf("boltstore: %s: %w", path, err)
}
