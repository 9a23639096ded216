package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
)

func testID(n int) (id idem.ID) {
	copy(id[:], fmt.Sprintf("%04x", uint16(n*40503)))
	copy(id[10:], fmt.Sprint(n))
	return id
}

func testRow(n int) idem.Row {
	return idem.Row{Ref: idem.Ref{Kind: idem.KindOperation, ID: testID(n)}, Operation: &idem.Record{
		Scope: idem.Scope{Tenant: "default", Tool: "tickets/create", Operation: "call"}, Source: idem.SourceHost,
		Key: fmt.Sprint(n), Generation: 1, State: idem.StateCommitted, Task: "task", Run: "run",
		Args: bytes.Repeat([]byte{'a'}, 120), Result: bytes.Repeat([]byte{'r'}, 300),
		CreatedAt: idem.Instant(n + 1), ExpiresAt: 1 << 60,
	}}
}

func mustPut(t testing.TB, s idem.Store, rows ...idem.Row) {
	t.Helper()
	if _, err := s.Commit(context.Background(), idem.Change{Puts: rows}); err != nil {
		t.Fatal(err)
	}
}

// smallLedger is a closed ledger with n rows, several commits and free pages.
func smallLedger(t testing.TB, n int) string {
	t.Helper()
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path, NoSocket: true})
	for i := 0; i < n; i += 25 {
		var rows []idem.Row
		for j := i; j < min(i+25, n); j++ {
			rows = append(rows, testRow(j))
		}
		mustPut(t, s, rows...)
	}
	big := testRow(n)
	big.Operation.Result = bytes.Repeat([]byte{'b'}, 3*4096)
	mustPut(t, s, big)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// readable opens a ledger that may be damaged. Either that is an error that is
// one of the sentinels, or every row that is read is what was written.
func readable(t *testing.T, path string, n int) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- readAll(path, n) }()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrGone) {
			t.Errorf("not one of the sentinels: %v", err)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("the message does not name the file: %v", err)
		}
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("opening or reading hangs")
		return nil
	}
}

func readAll(path string, n int) error {
	s, err := Open(Config{Path: path, NoSocket: true})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for i := range n {
		ref := testRow(i).Ref
		snap, err := s.Load(context.Background(), ref)
		if err != nil {
			return err
		}
		want := testRow(i).Operation
		got := snap.Operation(ref.ID)
		if got == nil || got.Key != want.Key || !bytes.Equal(got.Args, want.Args) || !bytes.Equal(got.Result, want.Result) {
			return fmt.Errorf("row %d is missing or wrong", i) // no sentinel: the test fails
		}
	}
	return nil
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// damagedCopy writes b as the ledger of a directory that has its marker.
func damagedCopy(t testing.TB, original string, b []byte) string {
	t.Helper()
	path := tempPath(t)
	if err := os.WriteFile(markerPath(path), mustRead(t, markerPath(original)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCutAtAnyLength(t *testing.T) {
	t.Parallel()
	const rows = 150
	path := smallLedger(t, rows)
	whole := mustRead(t, path)
	rep, err := Verify(path)
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int{len(whole) / 4, len(whole) / 2, 1, 80, 4095, 4096, 4097, 8192, 16384}
	for i := range 40 {
		cuts = append(cuts, len(whole)*i/40)
	}
	for _, cut := range cuts {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			p := damagedCopy(t, path, whole[:cut])
			err := readable(t, p, rows)
			if needed := int(rep.Pages) * rep.PageSize; err == nil && cut < needed {
				t.Errorf("a file of which %d bytes are needed was opened at %d", needed, cut)
			}
			if _, verr := VerifyRows(p); (verr == nil) != (err == nil) && cut > 0 {
				t.Errorf("open says %v, verify says %v", err, verr)
			}
		})
	}
}

func TestZeroedPages(t *testing.T) {
	t.Parallel()
	const rows = 150
	path := smallLedger(t, rows)
	whole := mustRead(t, path)
	rep, err := Verify(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for page := range int(rep.Pages) {
		b := bytes.Clone(whole)
		clear(b[page*rep.PageSize : (page+1)*rep.PageSize])
		if readable(t, damagedCopy(t, path, b), rows) != nil {
			refused++
		}
	}
	if refused < int(rep.InUse)/2 {
		t.Errorf("of %d pages in use, the loss of %d was noticed", rep.InUse, refused)
	}
}

// TestFlippedBytes: damage of any kind is an error or does not matter.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	const rows = 60
	path := smallLedger(t, rows)
	whole := mustRead(t, path)
	rep, err := Verify(path)
	if err != nil {
		t.Fatal(err)
	}
	end := int(rep.Pages) * rep.PageSize
	for at := 3; at < end; at += 1499 {
		b := bytes.Clone(whole)
		b[at] ^= 0x55
		_ = readable(t, damagedCopy(t, path, b), rows)
	}
}

func TestOpenRefuses(t *testing.T) {
	good := smallLedger(t, 3)
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	db, err := bbolt.Open(foreign, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("theirs"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), []byte("v"))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	other := smallLedger(t, 3)
	text := bytes.Repeat([]byte("this is no ledger\n"), 4000)

	for name, tc := range map[string]struct {
		content []byte // nil: no file
		want    error
		says    string
	}{
		"empty":             {[]byte{}, ErrGone, "the file is empty"},
		"missing":           {nil, ErrGone, "the file is missing"},
		"another ledger":    {mustRead(t, other), ErrGone, "another ledger"},
		"text":              {text, ErrDamaged, "not a ledger"},
		"a line of text":    {text[:18], ErrDamaged, "not a ledger"},
		"another program's": {mustRead(t, foreign), ErrDamaged, "another program"},
	} {
		t.Run(name, func(t *testing.T) {
			path := damagedCopy(t, good, tc.content)
			if tc.content == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(Config{Path: path})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want %v about %q", err, tc.want, tc.says)
			}
			if tc.content != nil && !bytes.Equal(mustRead(t, path), tc.content) {
				t.Error("the file was changed")
			}
			// Only what is empty or whole may be replaced, and only if told so.
			s, err = Open(Config{Path: path, NewLedger: true})
			if errors.Is(tc.want, ErrGone) != (err == nil) {
				t.Fatalf("as a new ledger: %v", err)
			}
			if err == nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if err := readAll(path, 0); err != nil {
					t.Fatalf("the new ledger does not open again: %v", err)
				}
			}
		})
	}
}

func TestBadMetaPageIsRefusedAndCompacted(t *testing.T) {
	for page := range 2 {
		path := smallLedger(t, 40)
		b := mustRead(t, path)
		clear(b[page*4096 : page*4096+100])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, check := range []func(string) (Report, error){Verify, VerifyRows} {
			if _, err := check(path); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "compact") {
				t.Fatalf("meta page %d: error %v", page, err)
			}
		}
		if _, _, err := Compact(path); err != nil {
			t.Fatalf("meta page %d: %v", page, err)
		}
		if err := readAll(path, 40); err != nil {
			t.Fatalf("meta page %d: %v", page, err)
		}
	}
}

func TestAFileWithoutMarkerIsAdopted(t *testing.T) {
	path := smallLedger(t, 3)
	marker := mustRead(t, markerPath(path))
	if err := os.Remove(markerPath(path)); err != nil {
		t.Fatal(err)
	}
	if err := readAll(path, 3); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mustRead(t, markerPath(path)), marker) {
		t.Fatal("the marker does not come back as it was")
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "mcp-idem")
	path := filepath.Join(dir, "ledger.db")
	mustOpen(t, Config{Path: path})
	for name, want := range map[string]os.FileMode{
		dir: 0o700, path: 0o600, markerPath(path): 0o600, pidPath(path): 0o600, socketPath(path): 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", filepath.Base(name), got, want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Path": {}, "LockWait": {Path: "x", LockWait: -1}, "LeaseGrace": {Path: "x", LeaseGrace: -1},
	} {
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "Config."+field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

func TestCompact(t *testing.T) {
	path := smallLedger(t, 300)
	s := mustOpen(t, Config{Path: path})
	if _, _, err := Compact(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("compacting a ledger that is held: %v", err)
	}
	var c idem.Change
	for i := 50; i < 300; i++ {
		c.Drops = append(c.Drops, testRow(i).Ref)
	}
	if _, err := s.Commit(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, after, err := Compact(path)
	if err != nil {
		t.Fatal(err)
	}
	if after.Size >= before.Size || after.Rows != 51 {
		t.Errorf("%d bytes became %d, with %d rows", before.Size, after.Size, after.Rows)
	}
	if err := readAll(path, 50); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + ".compact*"); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

// TestVerifyRowsFindsWrongIndexes: the structure is sound, the content is not.
func TestVerifyRowsFindsWrongIndexes(t *testing.T) {
	for name, change := range map[string]func(tx *bbolt.Tx) error{
		"an entry too few": func(tx *bbolt.Tx) error {
			c := tx.Bucket([]byte("by-task")).Cursor()
			c.First()
			return c.Delete()
		},
		"an entry too many": func(tx *bbolt.Tx) error { return tx.Bucket([]byte("by-due")).Put(make([]byte, 36), nil) },
		"a row of nonsense": func(tx *bbolt.Tx) error { return tx.Bucket([]byte("slot")).Put(make([]byte, 20), []byte("nonsense")) },
	} {
		t.Run(name, func(t *testing.T) {
			path := smallLedger(t, 10)
			db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(change), db.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(path); (err == nil) != strings.HasPrefix(name, "an entry") {
				t.Errorf("without the indexes: %v", err)
			}
			if _, err := VerifyRows(path); !errors.Is(err, ErrDamaged) {
				t.Errorf("the rows: error %v", err)
			}
		})
	}
}
