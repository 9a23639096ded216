package pgstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// ledger is a store with Must helpers.
type ledger struct {
	*pgstore.Store
	t testing.TB
}

// mustLedger opens a ledger whose limits are short, so that tests of them are.
func mustLedger(t testing.TB, url string) ledger {
	t.Helper()
	return ledger{mustOpen(t, pgstore.Config{URL: url, Patience: patience, StatementTimeout: timeout}), t}
}

const (
	patience = 3 * time.Second
	timeout  = 2 * time.Second
	// longest is what no call of such a ledger may take, on a busy machine.
	longest = patience + timeout + 4*time.Second
)

func (l ledger) mustCommit(c idem.Change) idem.Stamp {
	l.t.Helper()
	s, err := l.Commit(l.t.Context(), c)
	if err != nil {
		l.t.Fatalf("commit: %v", err)
	}
	return s
}

func (l ledger) mustLoad(refs ...idem.Ref) idem.Snapshot {
	l.t.Helper()
	s, err := l.Load(l.t.Context(), refs...)
	if err != nil {
		l.t.Fatalf("load: %v", err)
	}
	return s
}

func (l ledger) mustClock() idem.Instant {
	l.t.Helper()
	now, err := l.Clock(l.t.Context())
	if err != nil {
		l.t.Fatalf("clock: %v", err)
	}
	return now
}

// version is that of an operation; 0: there is none.
func (l ledger) version(n int) idem.Version {
	l.t.Helper()
	return l.mustLoad(op(n)).Row(op(n)).Version
}

// versions are those of the operations that there are.
func (l ledger) versions(numbers []int) map[int]idem.Version {
	l.t.Helper()
	versions := map[int]idem.Version{}
	for chunk := range slices.Chunk(numbers, 500) {
		refs := make([]idem.Ref, len(chunk))
		for i, n := range chunk {
			refs[i] = op(n)
		}
		snap := l.mustLoad(refs...)
		for i, n := range chunk {
			if v := snap.Row(refs[i]).Version; v > 0 {
				versions[n] = v
			}
		}
	}
	return versions
}

func id(n int) (id idem.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(id[12:], uint64(n))
	return id
}

func op(n int) idem.Ref { return idem.Ref{Kind: idem.KindOperation, ID: id(n)} }

func record(n int) *idem.Record {
	return &idem.Record{
		Scope:  idem.Scope{Tenant: "acme", Tool: "tickets/create", Operation: "call"},
		Source: idem.SourceHost, Key: fmt.Sprint(n), Generation: 1, State: idem.StatePlanned, Task: "task",
	}
}

// put puts an operation that must be at a version.
func put(n int, at idem.Version) idem.Change {
	return idem.Change{Needs: []idem.Need{{Ref: op(n), Version: at}}, Puts: []idem.Row{{Ref: op(n), Operation: record(n)}}}
}

func conflicted(err error) bool { return errors.As(err, new(*idem.Conflict)) }

func unknown(err error) bool { return errors.Is(err, idem.ErrCommitUnknown) }

// together runs n functions at once and returns when all are done.
func together(n int, fn func(n int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

// sql runs statements on a connection of its own.
func sql(t testing.TB, url string, texts ...string) {
	t.Helper()
	c := connect(t, url)
	defer c.Close(context.Background())
	for _, text := range texts {
		if _, err := c.Exec(context.WithoutCancel(t.Context()), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// ask reads one value.
func ask[T any](t testing.TB, url, text string, args ...any) (v T) {
	t.Helper()
	c := connect(t, url)
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), text, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// databaseOf is the database that a URL names.
func databaseOf(t testing.TB, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// connect opens a connection, which the caller closes.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.WithoutCancel(t.Context()), url) // in a cleanup too
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// within fails the test if fn takes longer than d.
func within(t testing.TB, d time.Duration, what string, fn func()) {
	t.Helper()
	start := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
		t.Logf("%s took %v", what, time.Since(start).Round(time.Millisecond))
	case <-time.After(d):
		t.Fatalf("%s takes longer than %v", what, d)
	}
}

// eventually waits for something that takes a moment.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in 20s", what)
		}
	}
}
