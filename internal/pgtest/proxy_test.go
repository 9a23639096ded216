package pgtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// table makes a database with a table t, and returns it direct and proxied.
func table(t *testing.T) (p *Proxy, direct *pgx.Conn, proxied string) {
	t.Helper()
	s := Shared(t)
	url := s.Database(t)
	direct = connect(t, url)
	exec1(t, direct, "CREATE TABLE t (n int)")
	p = s.Proxy(t)
	return p, direct, p.Through(url)
}

func rows(t *testing.T, c *pgx.Conn) int {
	t.Helper()
	return ask[int](t, c, "SELECT count(*) FROM t")
}

// lost checks that the connection was cut: there is an error, and not one that
// the server sent.
func lost(t *testing.T, err error) {
	t.Helper()
	if pg := (*pgconn.PgError)(nil); err == nil || errors.As(err, &pg) {
		t.Errorf("the error is %v, want a lost connection", err)
	}
}

// writers are ways to insert a row: what the driver sends differs.
var writers = map[string]func(ctx context.Context, c *pgx.Conn) error{
	"simple": func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO t VALUES ($1)", pgx.QueryExecModeSimpleProtocol, 1)
		return err
	},
	"prepared": func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO t VALUES ($1)", 1)
		return err
	},
	"one round trip": func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "INSERT INTO t VALUES ($1)", pgx.QueryExecModeExec, 1)
		return err
	},
	"batch": func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue("INSERT INTO t VALUES ($1)", 1)
		return c.SendBatch(ctx, b).Close()
	},
}

func TestDropNextResponse(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			p, direct, url := table(t)
			c, other := connect(t, url), connect(t, url)
			trap := p.DropNextResponse("insert into t")
			exec1(t, other, "SELECT 1") // no match
			lost(t, write(t.Context(), c))
			if n := rows(t, direct); n != 1 {
				t.Errorf("%d rows, want 1: the request was to be executed", n)
			}
			if got := trap.Wait(); got != "INSERT 0 1" {
				t.Errorf("the answer was %q", got)
			}
			if err := write(t.Context(), other); err != nil {
				t.Errorf("a trap that is sprung: %v", err)
			}
		})
	}
}

func TestDropNextRequest(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			p, direct, url := table(t)
			c := connect(t, url)
			trap := p.DropNextRequest("INSERT")
			lost(t, write(t.Context(), c))
			trap.Wait()
			if err := write(t.Context(), connect(t, url)); err != nil {
				t.Errorf("a trap that is sprung: %v", err)
			}
			if n := rows(t, direct); n != 1 {
				t.Errorf("%d rows, want 1: that of the second request", n)
			}
		})
	}
}

func TestDropCommit(t *testing.T) {
	insert := func(t *testing.T, url string) error {
		return pgx.BeginFunc(t.Context(), connect(t, url), func(tx pgx.Tx) error {
			return writers["prepared"](t.Context(), tx.Conn())
		})
	}
	t.Run("response", func(t *testing.T) {
		p, direct, url := table(t)
		trap := p.DropNextResponse("commit")
		lost(t, insert(t, url))
		if n, got := rows(t, direct), trap.Wait(); n != 1 || got != "COMMIT" {
			t.Errorf("%d rows, want 1; the answer was %q", n, got)
		}
	})
	t.Run("request", func(t *testing.T) {
		p, direct, url := table(t)
		p.DropNextRequest("commit")
		lost(t, insert(t, url))
		if n := rows(t, direct); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
	t.Run("request in parts", func(t *testing.T) {
		p, direct, url := table(t)
		c := connect(t, url)
		exec1(t, c, "BEGIN")
		exec1(t, c, "INSERT INTO t VALUES (1)")
		p.DropNextRequest("commit")
		_, err := c.Exec(t.Context(), "COMMIT", pgx.QueryExecModeExec)
		lost(t, err)
		if n := rows(t, direct); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
	t.Run("refused", func(t *testing.T) {
		p, direct, url := table(t)
		exec1(t, direct, "CREATE TABLE u (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		trap := p.DropNextResponse("commit")
		lost(t, pgx.BeginFunc(t.Context(), connect(t, url), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO u VALUES (1), (1)")
			return err
		}))
		if got := trap.Wait(); !strings.HasPrefix(got, "ERROR 23505: ") {
			t.Errorf("the answer was %q", got)
		}
	})
}

// TestHoldNextRequest: a request on its way is executed after its client has
// given up.
func TestHoldNextRequest(t *testing.T) {
	p, direct, url := table(t)
	for range 5 {
		c := connect(t, url)
		trap := p.HoldNextRequest("insert")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := writers["one round trip"](ctx, c); err == nil {
			t.Error("a held request is answered")
		}
		cancel()
		trap.Wait()
		if n := rows(t, direct); n != 0 {
			t.Errorf("%d rows while the request is held", n)
		}
		// The client also asks the server to cancel what it has given up. That is
		// in vain if it comes before the request, and else works.
		time.Sleep(300 * time.Millisecond)
		trap.Release()
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(look) {
			if rows(t, direct) > 0 {
				return
			}
		}
	}
	t.Fatal("the request did not reach the server")
}

func TestCut(t *testing.T) {
	p, _, url := table(t)
	for range 3 {
		c := connect(t, url)
		p.Cut()
		lost(t, c.Ping(t.Context()))
		_, err := pgx.Connect(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("a new connection: %v", err)
		}
		p.Restore()
		connect(t, url)
	}
}

func TestToxics(t *testing.T) {
	p, _, url := table(t)
	const text = "SELECT repeat('x', 100000)"
	slow := func(c *pgx.Conn, sql string) time.Duration {
		start := time.Now()
		exec1(t, c, sql)
		return time.Since(start)
	}
	for _, dir := range []Direction{Up, Down} {
		c := connect(t, url)
		p.Latency(dir, 150*time.Millisecond, 0)
		if d := slow(c, "SELECT 1"); d < 150*time.Millisecond {
			t.Errorf("latency %s: %v", dir, d)
		}
		p.Latency(dir, 0, 0) // in place of it
		if d := slow(c, "SELECT 2"); d > 140*time.Millisecond {
			t.Errorf("no latency %s: %v", dir, d)
		}
		p.Heal()
		exec1(t, c, "SELECT 1")

		p.Timeout(dir, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := c.Ping(ctx); err == nil || ctx.Err() == nil {
			t.Errorf("timeout %s: %v after %v", dir, err, ctx.Err())
		}
		cancel()
		p.Heal()

		c = connect(t, url)
		p.ResetPeer(dir, 0)
		lost(t, c.Ping(t.Context()))
		p.Heal()
		connect(t, url)
	}
	c := connect(t, url)
	p.Bandwidth(Down, 500)
	if d := slow(c, text); d < 100*time.Millisecond {
		t.Errorf("100 kB at 500 kB/s took %v", d)
	}
	p.Heal()
	p.CutAfterBytes(Down, 50_000)
	_, err := c.Exec(t.Context(), text)
	lost(t, err)
	p.Heal()
}

func TestSlowClose(t *testing.T) {
	p, direct, url := table(t)
	c := connect(t, url)
	pid := c.PgConn().PID()
	alive := func() bool {
		return ask[bool](t, direct, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $1", pid)
	}
	p.SlowClose(Up, time.Minute)
	// The client is gone, without a word of goodbye, and the server does not know.
	_ = c.PgConn().Conn().Close()
	time.Sleep(100 * time.Millisecond)
	if !alive() {
		t.Error("the server has seen the end of a connection that closes slowly")
	}
	p.Heal()
}

// TestUnusedTrap: a fault that never happens is a test that shows nothing.
func TestUnusedTrap(t *testing.T) {
	fake := &recorder{TB: t}
	p, _, _ := table(t)
	p.t = fake
	p.DropNextRequest("nothing has this")
	fake.end()
	if !fake.failed {
		t.Error("a trap that was never met is not reported")
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	cleanups []func()
	failed   bool
}

func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

// TestForget: an open connection gets no answer any more, and a new one does.
func TestForget(t *testing.T) {
	s := Shared(t)
	p := s.Proxy(t)
	url := p.Through(s.Database(t))
	old := connect(t, url)
	p.Forget()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := old.Exec(ctx, "SELECT 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on the old connection: %v", err)
	}
	if n := ask[int](t, connect(t, url), "SELECT 1"); n != 1 {
		t.Errorf("on a new one: %d", n)
	}
}
