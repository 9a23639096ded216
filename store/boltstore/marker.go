package boltstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ledgerID names a ledger for good: it is in the file and in the marker beside
// it.
type ledgerID [16]byte

func (id ledgerID) String() string { return hex.EncodeToString(id[:]) }

const markerText = "mcp-idem ledger "

func markerPath(path string) string { return path + ".id" }

// readMarker returns the id of the ledger that exists or existed at path.
func readMarker(path string) (id ledgerID, ok bool, err error) {
	b, err := os.ReadFile(markerPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	text, found := strings.CutPrefix(strings.TrimSpace(string(b)), markerText)
	raw, err := hex.DecodeString(text)
	if !found || err != nil || len(raw) != len(id) {
		// Somebody's marker it is, even if it cannot be read: better a refusal
		// than a new ledger.
		return id, true, nil
	}
	copy(id[:], raw)
	return id, true, nil
}

// writeMarker puts the marker in place durably; it is never seen half written.
func writeMarker(path string, id ledgerID) error {
	name := markerPath(path)
	f, err := os.OpenFile(name+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%s\n", markerText, id)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+".tmp", name)
	}
	if err != nil {
		_ = os.Remove(name + ".tmp")
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// Existed reports whether a ledger exists or existed at path.
func Existed(path string) bool {
	_, ok, err := readMarker(path)
	return ok || err != nil
}
