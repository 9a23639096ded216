package boltstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// sunPath is the longest path of a socket that every system takes.
const sunPath = 100

// tempSuffix is what the socket's name carries until it is ready.
const tempSuffix = ".new"

// socketPath is where the holder of the ledger at a resolved path listens:
// beside it, or where that is too long in a directory of this user under the
// system's temporary one, named by a hash.
func socketPath(path string) string {
	if p := path + ".sock"; len(p)+len(tempSuffix) <= sunPath {
		return p
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(socketDir(), hex.EncodeToString(sum[:12])+".sock")
}

func socketDir() string {
	return filepath.Join(os.TempDir(), "mcp-idem-"+strconv.Itoa(os.Getuid()))
}

// ownSocketDir checks that nobody else can have put a socket where we look for
// one: the temporary directory is everybody's. It makes the directory if asked.
func ownSocketDir(sock string, create bool) error {
	dir := filepath.Dir(sock)
	if dir != socketDir() {
		return nil
	}
	if create {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !ok || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("boltstore: %s has to be a directory of this user alone, mode 0700", dir)
	}
	return nil
}

// listen makes the socket under another name and moves it into place, mode and
// all: nobody can connect before it is private, and what a dead holder left is
// replaced. The caller holds the ledger's lock.
func listen(sock string) (*net.UnixListener, error) {
	if err := ownSocketDir(sock, true); err != nil {
		return nil, err
	}
	temp := sock + tempSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temp, 0o600)
	if err == nil {
		err = os.Rename(temp, sock)
	}
	if err != nil {
		_ = os.Remove(temp)
		_ = l.Close()
		return nil, err
	}
	return l, nil
}
