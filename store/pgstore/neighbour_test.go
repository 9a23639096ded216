package pgstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// TestLockedRowHoldsUpNoOther: who waits for a row that a stranger has locked
// waits alone, whether the others come behind it or in one group with it.
func TestLockedRowHoldsUpNoOther(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	l := mustLedger(t, url)
	const all = 20
	for n := range all {
		l.mustCommit(put(n, 0))
	}
	stranger := connect(t, url)
	defer stranger.Close(context.Background()) // and no garbage before
	if _, err := stranger.Exec(t.Context(), `BEGIN; SELECT FROM mcp_idem.operation WHERE id = '\x`+hexID(1)+`' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, 2)
	go func() { _, err := l.Commit(context.Background(), put(1, 1)); locked <- err }()
	time.Sleep(5 * time.Millisecond)
	if _, err := l.Commit(t.Context(), put(1000, 0)); err != nil {
		t.Errorf("behind a locked row: %v", err)
	}
	if err := <-locked; err == nil {
		t.Error("the locked row was written")
	}
	errs := make(chan error, all)
	for n := range all {
		go func() { _, err := l.Commit(context.Background(), put(n, 1)); errs <- err }()
	}
	failed := 0
	for range all {
		if <-errs != nil {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d of %d failed, want the locked one", failed, all)
	}
}

// TestEffectOnItsOwnSearchPath: what an effect's function finds on its search path
// cannot stand in for what the ledger's own statements use.
func TestEffectOnItsOwnSearchPath(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	s := newShop(t, url+"&search_path=shop,pg_catalog", url)
	sql(t, url, `CREATE FUNCTION shop.ne(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'`,
		`CREATE OPERATOR shop.<> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = shop.ne)`,
		`CREATE FUNCTION shop.eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE OPERATOR shop.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = shop.eq)`)
	old, next := s.guard(1, nobody{}), s.guard(2, dead{pid: 1})
	begun, end := make(chan struct{}), make(chan struct{})
	first := make(chan idem.Answer)
	go func() {
		first <- old.Do(context.Background(), tea("s1"), s.store.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
			if _, err := tx.Exec(ctx, `INSERT INTO orders (item) VALUES ('late')`); err != nil { // found on the path
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
	<-first
	s.books(1, idem.StateCommitted)
}

// TestEffectMeetsAConstraintOfItsOwn: a table of the business that is called like
// one of the ledger's is not taken for it.
func TestEffectMeetsAConstraintOfItsOwn(t *testing.T) {
	url := pgtest.Shared(t).Database(t)
	s := newShop(t, url, url)
	sql(t, url, `CREATE TABLE shop.entry (id int PRIMARY KEY)`, `INSERT INTO shop.entry VALUES (1)`)
	calls := 0
	a := s.guard(1, nobody{}).Do(t.Context(), tea("s1"), s.store.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
		calls++
		_, err := tx.Exec(ctx, `INSERT INTO shop.entry VALUES (1)`)
		return idem.Outcome{}, err
	}))
	if a.Err == nil || calls != 1 {
		t.Errorf("%d calls, answer %v", calls, a.Err)
	}
	s.books(0, idem.StateFailedFinal)
}

// TestImportCommitLost: an import that may be there is never called none.
func TestImportCommitLost(t *testing.T) {
	l, direct, p := behindProxy(t)
	p.DropNextResponse("commit")
	_, err := l.Import(t.Context(), l.mustClock(), func(yield func(idem.Row, error) bool) {
		yield(idem.Row{Ref: op(1), Version: 3, Operation: record(1)}, nil)
	})
	if !unknown(err) {
		t.Errorf("error %v", err)
	}
	if direct.version(1) == 0 {
		t.Error("the rows are not there")
	}
}

// TestUnknownCommitIsNotReadBeforeItIsReplicated: a commit that was broken off
// while it waited for a synchronous standby can be lost by a failover, so nobody
// may be told that it is there.
func TestUnknownCommitIsNotReadBeforeItIsReplicated(t *testing.T) {
	primary := pgtest.Start(t)
	standby := primary.Standby(t)
	sql(t, primary.URL("postgres"), `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`)
	eventually(t, "a synchronous standby", func() bool {
		return ask[int](t, primary.URL("postgres"), `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	url := primary.Database(t)
	st := mustOpen(t, pgstore.Config{URL: url, Patience: 2 * time.Second, StatementTimeout: time.Second})
	l := ledger{st, t}
	l.mustCommit(put(1, 0))
	standby.Kill()
	if _, err := l.Commit(context.Background(), put(2, 0)); !unknown(err) {
		t.Fatalf("without the standby: error %v", err)
	}
	snap, err := l.Load(context.Background(), op(2))
	if err == nil && len(snap.Rows) > 0 {
		t.Error("a row is read that a failover would lose")
	}
	if err != nil && !strings.Contains(err.Error(), "pgstore") {
		t.Errorf("error %v", err)
	}
}

// TestAnswerLostBehindPooler: a pooler that loses the server says so in its own
// words. What was applied is neither a conflict nor nothing.
func TestAnswerLostBehindPooler(t *testing.T) {
	s := pgtest.Start(t)
	url := s.Database(t)
	direct, p := mustLedger(t, url), s.Proxy(t)
	l := mustLedger(t, s.BouncerBehind(t, p, 20).Through(url)+"&pooler=transaction")
	l.mustCommit(put(9, 0))
	for version, statement := range []string{insertion, update} {
		p.DropNextResponse(statement)
		if _, err := l.Commit(t.Context(), put(1, idem.Version(version))); err != nil && !unknown(err) {
			t.Errorf("%s: error %v", statement, err)
		}
		if v := direct.version(1); v != idem.Version(version)+1 {
			t.Errorf("%s: version %d", statement, v)
		}
	}
}
