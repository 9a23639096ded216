package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// fill puts settled operations into a ledger: copies of one that a guard made,
// under other keys, through the store.
func fill(b *testing.B, st *pgstore.Store, rows int) {
	b.Helper()
	const batch = 500
	ctx := context.Background()
	k := newKeys(fmt.Sprint("fill-", time.Now().UnixNano()))
	must(b, newGuarded(b, st).call(k.next(), false))
	page, err := st.List(ctx, idem.Query{Order: idem.ByState, State: idem.StateCommitted, Limit: 1})
	if err != nil || len(page.Records) != 1 {
		b.Fatal("no operation to copy: ", err)
	}
	model := *page.Records[0]
	start := time.Now()
	var left atomic.Int64
	left.Store(int64(rows))
	var g errgroup.Group
	for range 2 * runtime.NumCPU() {
		g.Go(func() error {
			for {
				n := min(batch, batch+left.Add(-batch))
				if n <= 0 {
					return nil
				}
				var c idem.Change
				_, _ = rand.Read(c.ID[:])
				for range n {
					r := model
					r.Key = k.next()
					r.Op = idem.OperationID(r.Scope, r.Source, "", 1, r.Key)
					c.Puts = append(c.Puts, idem.Row{Ref: idem.Ref{Kind: idem.KindOperation, ID: r.Op}, Operation: &r})
				}
				if _, err := st.Commit(ctx, c); err != nil {
					return err
				}
			}
		})
	}
	must(b, g.Wait())
	b.Logf("filled %d rows in %v", rows, time.Since(start).Round(time.Millisecond))
}

// fill puts settled calls into the table.
func (n *naive) fill(b *testing.B, rows int) {
	b.Helper()
	_, err := n.pool.Exec(context.Background(), `insert into calls (key, request_hash, state, args, result)
		select 'fill-' || i, sha256($1), 'done', $1, $2 from generate_series(1, $3) i`, callArgs, callResult, rows)
	must(b, err)
}

// run runs statements on a database: a vacuum that autovacuum would do later, a
// checkpoint, so that a measurement begins in order.
func run(b *testing.B, url string, statements ...string) {
	b.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	must(b, err)
	defer c.Close(ctx)
	for _, sql := range statements {
		_, err := c.Exec(ctx, sql)
		must(b, err)
	}
}
