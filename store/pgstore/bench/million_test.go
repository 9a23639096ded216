package bench

import (
	"fmt"
	"os"
	"testing"
)

// BenchmarkMillion: guarded calls into a ledger of 1,000,000 settled operations
// against one of 10,000. Target: at most 1.3 times as long. PGSTORE_BENCH_ROWS
// sets another number.
func BenchmarkMillion(b *testing.B) {
	rows := 1_000_000
	if v := os.Getenv("PGSTORE_BENCH_ROWS"); v != "" {
		if _, err := fmt.Sscan(v, &rows); err != nil {
			b.Fatalf("PGSTORE_BENCH_ROWS: %v", err)
		}
	}
	s := server(b)
	ledger := func(rows int) *guarded {
		url := s.Database(b)
		st := openStore(b, url)
		fill(b, st, rows)
		run(b, url, `vacuum analyze`, `checkpoint`)
		return newGuarded(b, st)
	}
	big, small := ledger(rows), ledger(10_000)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			k := newKeys(fmt.Sprint("order-", callers))
			ratio := compare(b, callers,
				side{"big", func() error { return big.call(k.next(), false) }},
				side{"small", func() error { return small.call(k.next(), false) }})
			b.ReportMetric(1/ratio, "time/small")
		})
	}
}
