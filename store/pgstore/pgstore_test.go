package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
	"github.com/mcp-idem/mcp-idem/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func mustOpen(t testing.TB, cfg pgstore.Config) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	s := pgtest.Shared(t)
	storetest.Run(t, subjects(t, s.URL("postgres"), func(params ...string) string { return s.URL("postgres", params...) }), storetest.Features{Durable: true, Moves: true, Several: true})
}

// subjects makes ledgers in schemas of their own in one database, whose URL for
// stores may lead through something. A test that
// leaves its ledger in order leaves it to the next one, emptied: opening one takes
// longer than most tests.
func subjects(t testing.TB, direct string, database func(params ...string) string) storetest.Factory {
	s := &shelf{direct: direct, database: database}
	t.Cleanup(func() {
		for _, l := range s.ledgers {
			_ = l.st.Close()
		}
	})
	return s.subject
}

type shelf struct {
	direct   string // URL of the database
	database func(params ...string) string

	mu      sync.Mutex
	made    int
	ledgers []*shelved
}

type shelved struct {
	schema string
	url    string
	st     *pgstore.Store
}

func (s *shelf) subject(t testing.TB) storetest.Subject {
	l := s.take(t)
	t.Cleanup(func() { s.giveBack(t, l) })
	return storetest.Subject{
		Store:   l.st,
		Another: func(t testing.TB) idem.Store { return mustOpen(t, pgstore.Config{URL: l.url}) },
		Reopen: func(t testing.TB) idem.Store {
			_ = l.st.Close()
			l.open(t)
			return l.st
		},
	}
}

func (s *shelf) take(t testing.TB) *shelved {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.ledgers); n > 0 {
		l := s.ledgers[n-1]
		s.ledgers = s.ledgers[:n-1]
		return l
	}
	s.made++
	l := &shelved{schema: fmt.Sprintf("ledger_%d", s.made)}
	l.url = s.database("schema=" + l.schema)
	l.open(t)
	return l
}

func (l *shelved) open(t testing.TB) {
	t.Helper()
	var err error
	if l.st, err = pgstore.Open(t.Context(), pgstore.Config{URL: l.url}); err != nil {
		t.Fatal(err)
	}
}

// giveBack empties a ledger for the next one who needs one. One that is closed,
// or whose clock was set, is nobody's any more.
func (s *shelf) giveBack(t testing.TB, l *shelved) {
	ctx := context.WithoutCancel(t.Context())
	c := connect(t, s.direct)
	defer c.Close(ctx)
	var set bool
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(`DELETE FROM %[1]s.operation; DELETE FROM %[1]s.entry`, l.schema)); err != nil {
			return err
		}
		return tx.QueryRow(ctx, fmt.Sprintf(`SELECT ahead <> 0 FROM %s.clock`, l.schema)).Scan(&set)
	})
	if err != nil {
		t.Errorf("emptying a ledger: %v", err)
	}
	_, closed := l.st.Clock(ctx)
	if err != nil || set || errors.Is(closed, idem.ErrClosed) {
		_ = l.st.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledgers = append(s.ledgers, l)
}
