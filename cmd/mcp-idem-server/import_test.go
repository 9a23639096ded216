package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/archive"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// mustArchive makes a file of n rows.
func mustArchive(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w, err := archive.NewWriter(&b, "test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := idem.Row{Ref: idem.Ref{Kind: idem.KindAlias}, Version: 1, Alias: &idem.Alias{Operation: idem.ID{1}}}
		binary.BigEndian.PutUint64(r.Ref.ID[:], uint64(i))
		if err := w.Row(&r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(idem.InstantOf(time.Now())); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the comparison after an import is for: it sees every difference.
func TestVerifyImport(t *testing.T) {
	f, err := os.Open(mustArchive(t, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, err := archive.Check(again(f))
	if err != nil {
		t.Fatal(err)
	}
	ref := func(n byte) idem.Ref { return idem.Ref{Kind: idem.KindAlias, ID: idem.ID{7: n}} }
	alias := &idem.Alias{Operation: idem.ID{1}}
	for name, c := range map[string]struct {
		change idem.Change
		says   string
	}{
		"equal":         {},
		"one less":      {idem.Change{Drops: []idem.Ref{ref(2)}}, "is not row"},
		"the last less": {idem.Change{Drops: []idem.Ref{ref(4)}}, "is not in the ledger"},
		"one more":      {idem.Change{Puts: []idem.Row{{Ref: ref(9), Alias: alias}}}, "is not in the file"},
		"a version":     {idem.Change{Puts: []idem.Row{{Ref: ref(3), Alias: alias}}}, "at version 2"},
		"content": {idem.Change{Drops: []idem.Ref{ref(1)}, Puts: []idem.Row{{Ref: ref(0), Alias: &idem.Alias{Operation: idem.ID{2}}}}},
			"is not row"},
	} {
		st := memstore.New(memstore.Config{})
		if err := importFrom(t.Context(), st, f, s); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Commit(t.Context(), c.change); err != nil {
			t.Fatal(err)
		}
		err := verifyImport(t.Context(), st, f, s)
		if (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: error %v, want …%s…", name, err, c.says)
		}
	}
	then := s.Clock.Time()
	st := memstore.New(memstore.Config{Now: func() time.Time { return then }})
	if err := importFrom(t.Context(), st, f, s); err != nil {
		t.Fatal(err)
	}
	s.Clock++
	if err := verifyImport(t.Context(), st, f, s); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("a clock that is behind: error %v", err)
	}
}

// server is this program as a process.
func server(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Args = append([]string{"mcp-idem-server"}, args...)
	return cmd
}

// An import that is killed leaves nothing that a gateway could take for the
// ledger, and is simply run again.
func TestKilledImport(t *testing.T) {
	const rows = 10_000 // several transactions
	file := mustArchive(t, rows)
	kill := func(t *testing.T, ledger string, started func() bool) {
		t.Helper()
		cmd := server(t, "--ledger", ledger, "import", file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for !started() {
			time.Sleep(time.Millisecond)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("it had ended already: nothing was tried")
		}
	}
	mustImport := func(t *testing.T, ledger string) {
		t.Helper()
		out, err := server(t, "--ledger", ledger, "import", file).CombinedOutput()
		if err != nil || !bytes.HasPrefix(out, []byte("10000 rows imported and verified")) {
			t.Fatalf("%v: %s", err, out)
		}
		if out, err := server(t, "--ledger", ledger, "verify").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Run("bolt", func(t *testing.T) {
		ledger := filepath.Join(t.TempDir(), "ledger.db")
		kill(t, ledger, func() bool {
			info, err := os.Stat(ledger)
			return err == nil && info.Size() > 100<<10
		})
		for _, command := range [][]string{{"--", "cat"}, {"ops", "list"}, {"export"}, {"verify"}, {"doctor"}} {
			out, err := server(t, append([]string{"--ledger", ledger}, command...)...).CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() != exitFail || !bytes.Contains(out, []byte("run the import again")) {
				t.Errorf("%v: %v: %s", command, err, out)
			}
		}
		mustImport(t, ledger)
	})
	t.Run("Postgres", func(t *testing.T) {
		ledger := pgtest.Shared(t).Database(t)
		if out, err := server(t, "--ledger", ledger, "migrate").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		conn, err := pgx.Connect(t.Context(), ledger)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		kill(t, ledger, func() (copies bool) {
			err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'copy %' AND state = 'active')`).Scan(&copies)
			if err != nil {
				t.Fatal(err)
			}
			return copies
		})
		out, err := server(t, "--ledger", ledger, "verify").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("is sound: 0 rows")) {
			t.Fatalf("%v: %s", err, out)
		}
		mustImport(t, ledger)
	})
}
