package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const lockRetry = 25 * time.Millisecond

// locked opens a file and locks it, LOCK_EX or LOCK_SH, or fails with ErrLocked
// when wait is over. The lock goes with the open file, so bbolt, which is given
// this very file, finds it locked by itself.
func locked(path string, flag, how int, wait time.Duration) (*os.File, error) {
	for end := time.Now().Add(wait); ; time.Sleep(lockRetry) {
		f, err := os.OpenFile(path, flag, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil && sameFile(f, path):
			return f, nil
		case err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			_ = f.Close()
			return nil, fmt.Errorf("lock: %w", err)
		}
		// Held, or renamed away (by Compact) between open and lock.
		_ = f.Close()
		if time.Now().After(end) {
			return nil, fmt.Errorf("%w: %s%s: let it serve this process too, or stop it", ErrLocked, path, holder(path))
		}
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// The holder's pid lies beside the ledger, for the message of those who find it
// locked. It is a hint: the lock decides.
func pidPath(path string) string { return path + ".pid" }

func holder(path string) string {
	b, err := os.ReadFile(pidPath(path))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" by process %d", pid)
}

func writePID(path string) error {
	return os.WriteFile(pidPath(path), fmt.Appendln(nil, os.Getpid()), 0o600)
}

// resolve gives one name to a ledger that is reached by several, so that all
// find the same marker and socket.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(dir, filepath.Base(abs)), nil
	}
	return abs, nil
}
