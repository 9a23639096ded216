package boltstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// What is recorded in a file that was deleted or moved away would be found by
// nobody: it must not be believed.
func TestFileTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := Open(Config{Path: path, NoSocket: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	put := func(n byte) error {
		op := idem.ID{n}
		_, err := s.Commit(context.Background(), idem.Change{ID: idem.ChangeID{n},
			Puts: []idem.Row{{Ref: idem.Ref{Kind: idem.KindOperation, ID: op}, Operation: &idem.Record{Op: op, State: idem.StateCommitted}}}})
		return err
	}
	if err := put(1); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := put(2); !errors.Is(err, ErrGone) {
		t.Errorf("a commit into a file that was moved away: %v, want %v", err, ErrGone)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := put(3); err != nil {
		t.Errorf("a commit after the file was put back: %v", err)
	}
}
