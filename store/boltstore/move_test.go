package boltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

func commandRow(n int) idem.Row {
	r := idem.Row{Ref: idem.Ref{Kind: idem.KindCommand}, Version: 1, Command: &idem.CommandRow{Verb: "committed"}}
	binary.BigEndian.PutUint64(r.Ref.ID[:], uint64(n))
	return r
}

// commandRows are n rows; at the one with number at, look is called.
func commandRows(n, at int, look func() error) iter.Seq2[idem.Row, error] {
	return func(yield func(idem.Row, error) bool) {
		for i := range n {
			var err error
			if i == at {
				err = look()
			}
			if !yield(commandRow(i), err) {
				return
			}
		}
	}
}

// A ledger of which a part is missing would let effects happen once more, so
// nothing uses it until an import has ended.
func TestUnfinishedImport(t *testing.T) {
	s, copied := mustOpen(t, Config{Path: tempPath(t), NoSocket: true}), tempPath(t)
	const rows = 3 * importRows
	n, err := s.Import(t.Context(), 1, commandRows(rows, rows-1, func() error {
		_, loadErr := s.Load(t.Context())
		_, commitErr := s.Commit(t.Context(), idem.Change{Puts: []idem.Row{commandRow(1)}})
		_, exportErr := s.Export(t.Context(), func(idem.Row) error { return nil })
		_, importErr := s.Import(t.Context(), 1, commandRows(1, -1, nil))
		for name, err := range map[string]error{"load": loadErr, "commit": commitErr, "export": exportErr} {
			if !errors.Is(err, ErrUnfinished) {
				t.Errorf("%s during an import: error %v", name, err)
			}
		}
		if importErr == nil {
			t.Error("two imports at once")
		}
		return os.CopyFS(copied+".d", os.DirFS(filepath.Dir(s.path))) // as a crash leaves it
	}))
	if err != nil || n != rows {
		t.Fatalf("%d rows, error %v", n, err)
	}
	copied += ".d/ledger.db"
	if _, err := Open(Config{Path: copied, NewLedger: true}); !errors.Is(err, ErrUnfinished) {
		t.Errorf("open: error %v", err)
	}
	if _, err := VerifyRows(copied); !errors.Is(err, ErrUnfinished) {
		t.Errorf("verify: error %v", err)
	}
	again := mustOpen(t, Config{Path: copied, ForImport: true})
	if _, err := again.Load(t.Context()); !errors.Is(err, ErrUnfinished) {
		t.Errorf("load before the import: error %v", err)
	}
	// Opening alone has changed nothing.
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	again = mustOpen(t, Config{Path: copied, ForImport: true})
	if n, err := again.Import(t.Context(), 1, commandRows(5, -1, nil)); err != nil || n != 5 {
		t.Fatalf("the import again: %d rows, error %v", n, err)
	}
	left := 0
	if _, err := again.Export(t.Context(), func(idem.Row) error { left++; return nil }); err != nil || left != 5 {
		t.Fatalf("%d rows, error %v", left, err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyRows(copied); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, Config{Path: copied})
}

func TestImportIsCancelled(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t)})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Import(ctx, 1, commandRows(3*importRows, 2*importRows, func() error { cancel(); return nil }))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if n, err := s.Import(t.Context(), 1, commandRows(2, -1, nil)); err != nil || n != 2 {
		t.Fatalf("the ledger is not empty again: %d rows, error %v", n, err)
	}
}

// Older programs skip what they do not know; moving it on without that would
// lose it.
func TestExportOfNewerRows(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t)})
	type newer struct {
		idem.KeyRow
		More string `cbor:"99,keyasint"`
	}
	body, err := codec.Marshal(newer{KeyRow: idem.KeyRow{Generation: 3}, More: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ref := idem.Ref{Kind: idem.KindKey, ID: idem.ID{1}}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(rowBuckets[ref.Kind]).Put(ref.ID[:], codec.Seal(ref, 1, body))
	})
	if err != nil {
		t.Fatal(err)
	}
	if snap, err := s.Load(t.Context(), ref); err != nil || snap.Row(ref).Key.Generation != 3 {
		t.Fatalf("load: %v, error %v", snap.Rows, err)
	}
	_, err = s.Export(t.Context(), func(idem.Row) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Fatalf("error %v", err)
	}
}
