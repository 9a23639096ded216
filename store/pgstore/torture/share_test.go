package torture

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// TestSharedWork: three hosts without a leader settle what comes due for all of
// them at the same moment. Each operation is asked after about once, and little
// work is done in vain.
func TestSharedWork(t *testing.T) {
	const operations = 300
	url := pgtest.Shared(t).URL("postgres", fmt.Sprintf("schema=shared_%08x", rand.Uint32()))
	st, err := pgstore.Open(t.Context(), pgstore.Config{URL: url})
	must(t, err)
	defer func() { must(t, st.Close()) }()
	shop, dir := openShop(t, 0), t.TempDir()
	shop.asked = 30 * time.Millisecond
	var all [hosts]*process
	for i := range hosts {
		all[i] = &process{t: t, dir: dir, orders: orders{Host: i, Machine: fmt.Sprint("machine-", i), URL: url, Shop: shop.socket,
			Lease: time.Minute, Reconcile: true, Settle: settle, Quiet: true}}
		all[i].start()
	}
	for _, h := range all {
		h.wait()
	}
	time.Sleep(200 * time.Millisecond) // what they look for at their start they have seen

	now, err := st.Clock(t.Context())
	must(t, err)
	due := now.Add(3 * time.Second)
	for i := 0; i < operations; i += 100 {
		var c idem.Change
		for n := i; n < i+100; n++ {
			row := unknown(t, n, due)
			c.Puts = append(c.Puts, row)
			shop.add(effect{Key: row.Ref.ID.String()})
		}
		_, err := st.Commit(t.Context(), c)
		must(t, err)
	}
	now, err = st.Clock(t.Context())
	must(t, err)
	time.Sleep(due.Sub(now)) // on a slow machine the moment has come already
	began := time.Now()
	records := settled(t, st)
	took := time.Since(began)
	for _, h := range all {
		h.end()
	}

	for _, r := range records {
		if r.State != idem.StateCommitted {
			t.Errorf("not settled: %s", show(r))
		}
	}
	queries := 0
	for _, n := range shop.queries {
		queries += n
	}
	h := readHistory(t, dir)
	applies, conflicts := map[int]int{}, 0
	for _, c := range h.commits {
		if c.how == applied {
			applies[c.host]++
		} else {
			conflicts++
		}
	}
	t.Logf("%d operations settled in %v with %d queries, commits by host %v, %d in vain", operations, took, queries, applies, conflicts)
	if len(records) != operations || len(shop.queries) != operations {
		t.Errorf("%d records, %d were asked after, want %d", len(records), len(shop.queries), operations)
	}
	if queries > operations*11/10 {
		t.Errorf("%d queries for %d operations", queries, operations)
	}
	if conflicts > operations/6 {
		t.Errorf("%d commits in vain", conflicts)
	}
	for i := range hosts {
		if applies[i] < operations/10 {
			t.Errorf("host %d did next to nothing: %d commits", i, applies[i])
		}
	}
}

// unknown is an operation whose owner is gone and whose outcome is to be asked
// for at due.
func unknown(t *testing.T, n int, due idem.Instant) idem.Row {
	t.Helper()
	scope := idem.Scope{Tenant: tenant, Tool: "shop/order", Operation: "call"}
	op := idem.OperationID(scope, idem.SourceHost, "", 1, fmt.Sprint(n))
	r := &idem.Record{Op: op, Scope: scope, Source: idem.SourceHost, Key: fmt.Sprint(n), Generation: 1, CreatedAt: due}
	terms := idem.Terms{Query: true, Settle: settle, Every: time.Second, GiveUp: time.Minute, MaxAttempts: 3}
	at := idem.When{At: due}
	for _, ev := range []idem.Event{
		idem.Claim{When: at, Terms: terms, Owner: idem.Owner{Machine: "gone"}, LeaseEnd: due},
		idem.OwnerLost{When: at, Terms: terms, Attempt: 1},
	} {
		var err error
		r, err = idem.Next(r, ev)
		must(t, err)
	}
	return idem.Row{Ref: idem.Ref{Kind: idem.KindOperation, ID: op}, Operation: r}
}
