package torture

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// TestTorture makes a few runs, each from a fresh seed; with IDEM_TORTURE=10m it
// goes on for so long, and for 200 runs at least. IDEM_SEED=N makes one again.
func TestTorture(t *testing.T) {
	if s := os.Getenv("IDEM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		torture(t, startServer(t), newPlan(seed))
		return
	}
	long, err := time.ParseDuration(cmp.Or(os.Getenv("IDEM_TORTURE"), "0s"))
	must(t, err)
	runs, end := 6, time.Now().Add(long)
	if long > 0 {
		runs = 200
	}
	// Hosts mostly wait: two runs at a time, each on a server of its own.
	var done atomic.Int64
	for lane := range 2 {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			for done.Add(1) <= int64(runs) || time.Now().Before(end) {
				p := newPlan(rand.Uint64())
				t.Run(fmt.Sprint(p.seed), func(t *testing.T) { torture(t, s, p) })
				if t.Failed() {
					return
				}
			}
		})
	}
}

// startServer starts a server that does not wait long, when it is stopped, for a
// paused host that has only begun to connect.
func startServer(t *testing.T) *pgtest.Server {
	t.Helper()
	s := pgtest.Start(t, pgtest.Set("authentication_timeout", "5s"))
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	must(t, err)
	_, err = conn.Exec(t.Context(), bookings)
	must(t, errors.Join(err, conn.Close(t.Context())))
	return s
}

// torture is one run.
func torture(t *testing.T, server *pgtest.Server, p plan) {
	t.Log(p)
	b := &breaker{t: t, rng: rand.New(rand.NewPCG(p.seed, 1)), server: server}
	defer func() {
		if t.Failed() {
			t.Logf("broken: %q\nagain: IDEM_SEED=%d go test -race -run TestTorture ./store/pgstore/torture", b.log, p.seed)
		}
	}()
	// A schema costs the server less than a database.
	url := server.URL("postgres", fmt.Sprintf("schema=run_%d", p.seed), "pool_max_conns=4")
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
	must(t, err)
	defer func() { must(t, st.Close()) }()
	shop, dir, began := openShop(t, p.seed), t.TempDir(), now()
	for i := range hosts {
		b.proxies[i] = server.Proxy(t)
		if p.latency[i] > 0 {
			b.proxies[i].Latency(pgtest.Up, p.latency[i], p.latency[i]/2)
		}
		b.hosts[i] = &process{t: t, dir: dir, orders: orders{
			Host: i, Machine: fmt.Sprintf("machine-%d", i%p.machines), Seed: p.seed, Began: began, URL: b.proxies[i].Through(url), Shop: shop.socket,
			Lease: p.lease, Patience: p.patience[i], Skew: p.skew[i], Reconcile: p.reconcile, Settle: settle, Atomic: p.atomic,
		}}
		b.hosts[i].start()
	}
	for _, h := range b.hosts {
		h.wait()
	}
	broken := now()
	b.run(broken, b.schedule(p))
	b.spring()
	for _, h := range b.hosts {
		h.rest()
	}
	mended := now()
	settled(t, st)
	quiet := now()
	for _, h := range b.hosts {
		h.end()
	}
	records, effects := settled(t, st), shop.close()
	var torn []string
	if p.atomic {
		effects = booked(t, server.URL("postgres"), p.seed)
		torn = whole(records, effects)
	}
	h := readHistory(t, dir)
	h.reload(t, st)
	for _, bad := range [][]string{torn, h.judge(records, effects), h.invariants(b.crashes), h.linearizable(20 * time.Second)} {
		for _, s := range bad {
			t.Error(s)
		}
	}
	if t.Failed() {
		keep(t, dir)
	}
	t.Logf("started in %v, broken for %v, settled in %v, judged in %v\n%s",
		broken.sub(began), mended.sub(broken), quiet.sub(mended), now().sub(quiet), h.summary(records, effects, b))
}

// keep copies the histories to where they outlast the test.
func keep(t *testing.T, dir string) {
	to, err := os.MkdirTemp("", "torture-") //nolint:usetesting // it outlasts the test
	must(t, err)
	must(t, os.CopyFS(filepath.Join(to, "history"), os.DirFS(dir)))
	t.Logf("the histories are in %s", to)
}

func (h *history) summary(records []*idem.Record, effects []effect, b *breaker) string {
	ends, states := map[string]int{}, map[idem.State]int{}
	renewals, takeovers := 0, 0
	for _, c := range h.commits {
		ends[c.how]++
		for _, r := range c.rows {
			switch {
			case c.how != applied || r.Kind != idem.KindOperation:
			case r.Mark:
				renewals++
			case r.Lease == idem.LeaseOver:
				takeovers++
			}
		}
	}
	for _, r := range records {
		states[r.State]++
	}
	return fmt.Sprintf("%d operations %v, %d effects, commits %v, %d renewals, %d takeovers, %d reads, %d answers, faults %q",
		len(records), states, len(effects), ends, renewals, takeovers, len(h.reads), len(h.answers), b.log)
}
