package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// rules are one set for every tool.
type rules struct{}

func (rules) Rules(string) (idem.Rules, bool) {
	return idem.Rules{Operation: "call", Repeat: idem.RepeatOccurrence, Wait: 10 * time.Second, Lease: 2 * time.Second,
		Retry:      idem.Retry{MaxAttempts: 3, Delay: func(int, time.Duration) time.Duration { return time.Millisecond }},
		FailureTTL: time.Hour, Retention: time.Hour, OccurrenceRetention: time.Hour}, true
}

// nobody is known to be dead.
type nobody struct{}

func (nobody) Dead(idem.Owner) bool                                  { return false }
func (nobody) EndGroup(context.Context, idem.Owner, idem.Group) bool { return false }

// dead is a world in which one process is known to be dead.
type dead struct {
	nobody
	pid int
}

func (d dead) Dead(o idem.Owner) bool { return o.PID == d.pid }

// shop is a business in the ledger's database.
type shop struct {
	testing.TB
	conn  *pgx.Conn
	store *pgstore.Store
}

func newShop(t testing.TB, ledger, direct string) *shop {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `CREATE SCHEMA shop; CREATE TABLE shop.stock (item text PRIMARY KEY, left_over int);
		CREATE TABLE shop.orders (id bigserial PRIMARY KEY, item text); INSERT INTO shop.stock VALUES ('tea', 5)`)
	if err != nil {
		t.Fatal(err)
	}
	return &shop{TB: t, conn: conn, store: mustOpen(t, pgstore.Config{URL: ledger})}
}

func (s *shop) guard(pid int, p idem.Processes) *idem.Guard {
	s.Helper()
	g, err := idem.New(idem.Config{Store: s.store, Policy: rules{}, Processes: p, Owner: idem.Owner{Machine: "m", PID: pid}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			s.Error(err)
		}
	})
	return g
}

func tea(step string) idem.Ask {
	return idem.Ask{Tenant: "default", Tool: "shop/order", Args: []byte(`{"item":"tea"}`), Task: "t1", Step: step}
}

// books judges the business: so many orders, and as much less in stock; and the
// record that says so, or does not.
func (s *shop) books(orders int, state idem.State) *idem.Record {
	s.Helper()
	var booked, left int
	if err := s.conn.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM shop.orders), (SELECT left_over FROM shop.stock)`).Scan(&booked, &left); err != nil {
		s.Fatal(err)
	}
	page, err := s.store.List(context.Background(), idem.Query{})
	if err != nil || len(page.Records) != 1 {
		s.Fatalf("%d operations, error %v", len(page.Records), err)
	}
	r := page.Records[0]
	if booked != orders || left != 5-orders || r.State != state {
		s.Errorf("%d orders, %d left, the record says %s (%s); want %d, %d, %s", booked, left, r.State, r.Text, orders, 5-orders, state)
	}
	return r
}

func wantOrder(t testing.TB, a idem.Answer, replayed bool) {
	t.Helper()
	if a.Err != nil || !strings.HasPrefix(string(a.Result), `{"order":`) || a.Replayed != replayed {
		t.Errorf("answer %s (replayed %v), error %v", a.Result, a.Replayed, a.Err)
	}
}

func TestEffect(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	s := newShop(t, url, url)
	g := s.guard(1, nobody{})
	wantOrder(t, g.Do(t.Context(), tea("s1"), s.store.Effect(order)), false)
	wantOrder(t, g.Do(t.Context(), tea("s1"), s.store.Effect(order)), true)
	if r := s.books(1, idem.StateCommitted); r.ExternalID == "" || !r.Attempts[0].Atomic {
		t.Errorf("external id %q, attempt %+v", r.ExternalID, r.Attempts[0])
	}
}

// TestEffectRollsBack: whatever the function did in a transaction that failed is
// gone, and the record says that nothing happened.
func TestEffectRollsBack(t *testing.T) {
	for name, after := range map[string]func(context.Context, pgx.Tx) error{
		"an error":            func(context.Context, pgx.Tx) error { return errors.New("no more") },
		"a panic":             func(context.Context, pgx.Tx) error { panic("no more") },
		"a failed statement":  func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `SELECT 1/0`); return nil },
		"a commit of its own": func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Shared(t).Database(t)
			s := newShop(t, url, url)
			a := s.guard(1, nobody{}).Do(t.Context(), tea("s1"), s.store.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
				out, err := order(ctx, tx, d)
				if err == nil {
					err = after(ctx, tx)
				}
				return out, err
			}))
			if a.Err == nil {
				t.Errorf("answer %s", a.Result)
			}
			if r := s.books(0, idem.StateFailedFinal); r.MayHaveApplied() {
				t.Error("it may have been applied")
			}
		})
	}
}

// TestEffectRunsAgain: what a database asks to be done again is done again.
func TestEffectRunsAgain(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	s := newShop(t, url, url)
	var calls atomic.Int32
	a := s.guard(1, nobody{}).Do(t.Context(), tea("s1"), s.store.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
		out, err := order(ctx, tx, d)
		switch calls.Add(1) {
		case 1:
			_, err = tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		case 2:
			_, err = tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		}
		return out, err
	}))
	wantOrder(t, a, false)
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls", n)
	}
	s.books(1, idem.StateCommitted)
}

// TestEffectCommitLost: the answer to the commit, or the commit itself, is lost.
func TestEffectCommitLost(t *testing.T) {
	for name, tc := range map[string]struct {
		lose  func(p *pgtest.Proxy, sql string) *pgtest.Trap
		calls int32
	}{
		"the answer":  {(*pgtest.Proxy).DropNextResponse, 1},
		"the request": {(*pgtest.Proxy).DropNextRequest, 2},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Shared(t)
			url, proxy := server.Database(t), server.Proxy(t)
			s := newShop(t, proxy.Through(url), url)
			var calls atomic.Int32
			var trap *pgtest.Trap
			a := s.guard(1, nobody{}).Do(t.Context(), tea("s1"), s.store.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
				if calls.Add(1) == 1 {
					trap = tc.lose(proxy, "commit")
				}
				return order(ctx, tx, d)
			}))
			wantOrder(t, a, false)
			if !trap.Sprung() {
				t.Fatal("no commit was lost")
			}
			if n := calls.Load(); n != tc.calls {
				t.Errorf("%d calls, want %d; lost was %q", n, tc.calls, trap.Wait())
			}
			s.books(1, idem.StateCommitted)
		})
	}
}

// TestEffectFenced: another process takes over while the transaction is open. The
// old one can never commit.
func TestEffectFenced(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	s := newShop(t, url, url)
	old, next := s.guard(1, nobody{}), s.guard(2, dead{pid: 1})
	begun, end := make(chan struct{}), make(chan struct{})
	first := make(chan idem.Answer)
	go func() {
		first <- old.Do(context.Background(), tea("s1"), s.store.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO shop.orders (item) VALUES ('late')`); err != nil {
				return idem.Outcome{}, err
			}
			close(begun)
			<-end
			return idem.Outcome{Result: []byte(`{"order":0}`), Kind: idem.ResultValue}, nil
		}))
	}()
	<-begun
	wantOrder(t, next.Do(t.Context(), tea("s1"), s.store.Effect(order)), false)
	close(end)
	if a := <-first; a.Err == nil && string(a.Result) == `{"order":0}` {
		t.Errorf("the fenced attempt answered %s", a.Result)
	}
	s.books(1, idem.StateCommitted)
}
