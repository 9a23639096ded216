package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BenchmarkGrowth: what one call leaves on the disk, for each side: bytes of
// tables and of indexes, dead rows included as autovacuum left them; what stays
// of both after VACUUM FULL; and bytes of WAL. For ours and the naive table also
// each relation. An iteration is a thousand calls.
func BenchmarkGrowth(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B, url string) side
	}{
		{"ours", func(b *testing.B, url string) side { return newGuarded(b, openStore(b, url)).fresh(newKeys("order")) }},
		{"naive", func(b *testing.B, url string) side { return newNaive(b, url).fresh(newKeys("order")) }},
		{"dbos", func(b *testing.B, url string) side { return newDurable(b, url).fresh(newKeys("order")) }},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", c.name, callers), func(b *testing.B) {
				url := server(b).Database(b)
				s := c.open(b, url)
				fresh := measure(b, url)
				empty := fresh.tables + fresh.indexes
				s.times(b, callers, 100) // connections, prepared statements
				run(b, url, `vacuum analyze`, `checkpoint`)
				before, calls := measure(b, url), 0
				for b.Loop() {
					s.times(b, callers, 1000)
					calls += 1000
				}
				after := measure(b, url)
				after.report(b, before, calls, c.name != "dbos")
				run(b, url, `vacuum full`)
				kept := measure(b, url)
				b.ReportMetric(float64(kept.tables+kept.indexes-empty)/float64(100+calls), "kept-B/op")
			})
		}
	}
}

func (s side) times(b *testing.B, callers, n int) {
	b.Helper()
	var begun atomic.Int64
	s.run(b, callers, func() bool { return int(begun.Add(1)) <= n })
}

// footprint is what lies on the disk, in bytes.
type footprint struct {
	relations map[string]int64 // tables with their TOAST, and each index
	tables    int64
	indexes   int64
	wal       int64
	images    int64 // full-page images in the WAL
}

func measure(b *testing.B, url string) footprint {
	b.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	must(b, err)
	defer c.Close(ctx)
	f := footprint{relations: map[string]int64{}}
	rows, err := c.Query(ctx, `
		select c.relname, c.relkind = 'i', case c.relkind when 'i' then pg_relation_size(c.oid) else pg_table_size(c.oid) end
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'i', 'm') and n.nspname <> 'information_schema' and n.nspname not like 'pg\_%'`)
	must(b, err)
	var name string
	var index bool
	var size int64
	_, err = pgx.ForEachRow(rows, []any{&name, &index, &size}, func() error {
		f.relations[name] += size
		if index {
			f.indexes += size
		} else {
			f.tables += size
		}
		return nil
	})
	must(b, err)
	must(b, c.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::bigint, wal_fpi from pg_stat_wal`).Scan(&f.wal, &f.images))
	return f
}

// report divides what has grown by the number of calls.
func (f footprint) report(b *testing.B, before footprint, calls int, each bool) {
	b.Helper()
	per := func(now, then int64) float64 { return float64(now-then) / float64(calls) }
	for _, name := range slices.Sorted(maps.Keys(f.relations)) {
		if grown := per(f.relations[name], before.relations[name]); each && grown >= 1 {
			b.ReportMetric(grown, name+"-B/op")
		}
	}
	b.ReportMetric(per(f.tables, before.tables), "tables-B/op")
	b.ReportMetric(per(f.indexes, before.indexes), "indexes-B/op")
	b.ReportMetric(per(f.wal, before.wal), "wal-B/op")
	b.ReportMetric(per(f.images, before.images), "wal-images/op")
	b.ReportMetric(0, "ns/op")
}
