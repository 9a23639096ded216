//go:build linux

package pgstore_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	crand "crypto/rand"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// disk is a small disk of its own for a part of a server.
type disk struct {
	t   testing.TB
	dir string
}

// mustDisk mounts a disk of so many megabytes.
func mustDisk(t testing.TB, dir string, megabytes int) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		needed(t, "a small disk can be mounted by root only: run this test as root")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		needed(t, fmt.Sprintf("a small disk cannot be mounted: %v: run this test where mount is allowed", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return &disk{t, dir}
}

// needed ends a test that this machine cannot run: it fails in CI.
func needed(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func (d *disk) grow(megabytes int) {
	d.t.Helper()
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		d.t.Fatal(err)
	}
}

// likeData gives a folder to the user of the server.
func likeData(t testing.TB, s *pgtest.Server, dir string) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(s.Dir(), "data"), &st); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(st.Uid), int(st.Gid)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// large puts an operation with a result that nothing shortens.
func large(n, size int) idem.Change {
	c := put(n, 0)
	c.Puts[0].Operation.Result = make([]byte, size)
	_, _ = crand.Read(c.Puts[0].Operation.Result) // it never fails
	return c
}

// TestFull: where the tables find no space, commits say so, and nothing of them
// is there. With space again, all is well.
func TestFull(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	dir := filepath.Join(s.Dir(), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := mustDisk(t, dir, 24)
	likeData(t, s, dir)
	t.Cleanup(func() { s.Stop(pgtest.Fast) }) // before the disk goes
	sql(t, s.URL("postgres"), fmt.Sprintf(`CREATE TABLESPACE small LOCATION '%s'`, dir), `CREATE DATABASE ledger TABLESPACE small`)
	l := mustLedger(t, s.URL("ledger"))
	told := map[int]error{}
	full := 0
	for n := 1; full < 3 && n < 200; n++ {
		_, err := l.Commit(t.Context(), large(n, 256<<10))
		told[n] = err
		if err != nil {
			full++
			if !errors.Is(err, pgstore.ErrFull) || unknown(err) || !strings.Contains(err.Error(), "free some space") {
				t.Errorf("commit %d: error %v", n, err)
			}
		}
	}
	if full == 0 {
		t.Fatal("the disk was never full")
	}
	compare(t, l, told)
	d.grow(100)
	for n := range told {
		if told[n] != nil {
			l.mustCommit(large(n, 256<<10))
		}
	}
}

// compare checks that what is there is what commits said.
func compare(t testing.TB, l ledger, told map[int]error) {
	t.Helper()
	versions := l.versions(slices.Collect(maps.Keys(told)))
	for n, err := range told {
		v := versions[n]
		if (err == nil && v != 1) || (err != nil && !unknown(err) && v != 0) {
			t.Errorf("operation %d is at version %d, its commit said: %v", n, v, err)
		}
	}
}

// TestFullLog: where the server's log finds no space, the server dies, in the
// middle of commits. What they said holds when it is back.
func TestFullLog(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Set("max_wal_size", "1GB"), pgtest.Set("wal_keep_size", "1GB"))
	url := s.Database(t)
	mustLedger(t, url).mustCommit(put(1, 0))
	s.Stop(pgtest.Fast)
	wal := filepath.Join(s.Dir(), "data", "pg_wal")
	old := wal + ".old"
	if err := os.Rename(wal, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(wal, 0o700); err != nil {
		t.Fatal(err)
	}
	d := mustDisk(t, wal, 45)
	likeData(t, s, wal)
	if out, err := exec.Command("cp", "-a", old+"/.", wal).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(s.Kill) // before the disk goes
	s.Start()
	l := mustLedger(t, url)
	told := map[int]error{}
	for n := 2; n < 200; n++ {
		start := time.Now()
		_, err := l.Commit(t.Context(), large(n, 512<<10))
		if took := time.Since(start); took > longest {
			t.Errorf("a commit took %v", took)
		}
		if told[n] = err; err != nil {
			t.Logf("commit %d: %v", n, err)
			break
		}
	}
	s.Kill() // as it may be, or not, after its panic
	d.grow(1000)
	s.Start()
	if len(told) > 190 {
		t.Fatal("the disk was never full")
	}
	compare(t, l, told)
	l.mustCommit(put(1, 1))
}
