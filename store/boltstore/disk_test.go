package boltstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// mountTmpfs gives a small file system of its own.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		const how = "this test mounts a small tmpfs, which takes root (or CAP_SYS_ADMIN): run it as root, " +
			"in a container with --cap-add SYS_ADMIN, or under `unshare --user --map-root-user --mount`"
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: %v", how, err)
		}
		t.Skipf("%s: %v", how, err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := mountTmpfs(t, "size=1m")
	path := filepath.Join(dir, "ledger.db")
	s := mustOpen(t, Config{Path: path})
	mustPut(t, s, testRow(0))
	ballast := filepath.Join(dir, "ballast")
	err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600) // as far as it goes
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	stored := 1
	for {
		row := testRow(stored)
		row.Operation.Result = bytes.Repeat([]byte{'r'}, 8<<10)
		if _, err = s.Commit(context.Background(), idem.Change{Puts: []idem.Row{row}}); err != nil {
			break
		}
		if stored++; stored > 1000 {
			t.Fatal("the disk does not fill up")
		}
	}
	if !errors.Is(err, ErrFull) || errors.Is(err, idem.ErrCommitUnknown) || !strings.Contains(err.Error(), path) {
		t.Fatalf("error %v, want ErrFull", err)
	}
	present := func(n int) bool {
		t.Helper()
		snap, err := s.Load(context.Background(), testRow(n).Ref)
		if err != nil {
			t.Fatal(err)
		}
		return snap.Operation(testID(n)) != nil
	}
	for n := range stored {
		if !present(n) {
			t.Fatalf("row %d is gone", n)
		}
	}
	if present(stored) {
		t.Fatal("a row that failed is there")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, testRow(stored))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := VerifyRows(path); err != nil || rep.Rows != uint64(stored)+1 {
		t.Fatalf("%d rows, want %d: %v", rep.Rows, stored+1, err)
	}
}

func TestOpenOnAFullDisk(t *testing.T) {
	dir := mountTmpfs(t, "size=64k")
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	path := filepath.Join(dir, "ledger.db")
	if _, err := Open(Config{Path: path}); !errors.Is(err, ErrFull) {
		t.Fatalf("error %v, want ErrFull", err)
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, Config{Path: path}) // what was begun is not in the way
}

func wantReadOnly(t *testing.T, path string) {
	t.Helper()
	s, err := Open(Config{Path: path})
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want ErrReadOnly", err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Run("file system", func(t *testing.T) {
		dir := mountTmpfs(t, "size=4m")
		path := filepath.Join(dir, "ledger.db")
		s := mustOpen(t, Config{Path: path})
		mustPut(t, s, testRow(0))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		wantReadOnly(t, path)
		wantReadOnly(t, filepath.Join(dir, "new.db"))
		wantReadOnly(t, filepath.Join(dir, "sub", "new.db"))
		if _, err := VerifyRows(path); err != nil {
			t.Errorf("verify: %v", err)
		}
	})
	t.Run("mode", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("modes do not bind root; the file system's test above covers it")
		}
		path := smallLedger(t, 1)
		for _, name := range []string{path, filepath.Dir(path)} {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(name, info.Mode().Perm()&0o555); err != nil {
				t.Fatal(err)
			}
			wantReadOnly(t, path)
			if err := os.Chmod(name, info.Mode().Perm()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDamageAtRuntime: the file is cut under the store's feet. Reading it is a
// fault, which must be an error.
func TestDamageAtRuntime(t *testing.T) {
	for name, size := range map[string]int64{"to nothing": 0, "to its meta pages": 8192} {
		for _, first := range []string{"Load", "Commit", "List"} {
			t.Run(name+", then "+first, func(t *testing.T) {
				path := smallLedger(t, 200)
				s := mustOpen(t, Config{Path: path})
				if err := os.Truncate(path, size); err != nil {
					t.Fatal(err)
				}
				ctx := context.Background()
				use := map[string]func() error{
					"Load":   func() error { _, err := s.Load(ctx, testRow(1).Ref); return err },
					"Commit": func() error { _, err := s.Commit(ctx, idem.Change{Puts: []idem.Row{testRow(1)}}); return err },
					"List":   func() error { _, err := s.List(ctx, idem.Query{}); return err },
				}
				if err := use[first](); !errors.Is(err, ErrDamaged) {
					t.Errorf("%s: error %v", first, err)
				}
				for name, fn := range use {
					if err := fn(); !errors.Is(err, ErrBroken) || !errors.Is(err, ErrDamaged) {
						t.Errorf("%s after it: error %v", name, err)
					}
				}
				closed := make(chan error, 1)
				go func() { closed <- s.Close() }()
				select {
				case err := <-closed:
					if err != nil {
						t.Errorf("close: %v", err)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("close hangs")
				}
				if _, err := Open(Config{Path: path}); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrGone) {
					t.Errorf("open after it: error %v", err)
				}
			})
		}
	}
}

// TestCommitErrors: what bbolt's errors mean, see the package documentation.
func TestCommitErrors(t *testing.T) {
	write := func(no syscall.Errno) error { return &os.PathError{Op: "write", Path: "ledger.db", Err: no} }
	for name, tc := range map[string]struct {
		err    error
		want   error
		broken bool
	}{
		"no space":          {write(syscall.ENOSPC), ErrFull, false},
		"quota":             {write(syscall.EDQUOT), ErrFull, false},
		"write":             {write(syscall.EIO), idem.ErrCommitUnknown, true},
		"sync":              {syscall.EIO, idem.ErrCommitUnknown, true},
		"sync without room": {syscall.ENOSPC, idem.ErrCommitUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
			if err := s.committed(tc.err); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			_, lerr := s.Load(context.Background())
			_, cerr := s.Commit(context.Background(), idem.Change{Puts: []idem.Row{testRow(1)}})
			if errors.Is(lerr, ErrBroken) != tc.broken || errors.Is(cerr, ErrBroken) != tc.broken {
				t.Errorf("after it: load %v, commit %v", lerr, cerr)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			mustOpen(t, Config{Path: s.Path(), NoSocket: true})
		})
	}
}

func TestLeaseGrace(t *testing.T) {
	clock := newTestClock()
	cfg := Config{Path: tempPath(t), Now: clock.Now, NoSocket: true}
	s := mustOpen(t, cfg)
	token := idem.Token{1}
	row := testRow(1)
	row.Operation.State = idem.StateStarted
	row.Operation.Lease = idem.Lease{Token: token, End: idem.InstantOf(clock.Now()).Add(time.Second)}
	mustPut(t, s, row)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	cfg.LeaseGrace = 30 * time.Second
	s = mustOpen(t, cfg)
	over := idem.Change{Needs: []idem.Need{{Ref: row.Ref, Version: 1, Lease: idem.LeaseOver}}}
	if _, err := s.Commit(context.Background(), over); err == nil {
		t.Error("the lease is over, though its holder may have extended it")
	}
	clock.Advance(30 * time.Second)
	if _, err := s.Commit(context.Background(), over); err != nil {
		t.Errorf("after the grace: %v", err)
	}
}
