package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkNaive: guarded calls against the naive table. Targets: at least 0.95
// of its rate with one caller, at least 2.5 times with 64.
func BenchmarkNaive(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := server(b)
			ours := newGuarded(b, openStore(b, s.Database(b)))
			theirs := newNaive(b, s.Database(b))
			compare(b, callers, ours.fresh(newKeys("order")), theirs.fresh(newKeys("order")))
		})
	}
}

// BenchmarkDBOS: guarded calls against workflows of one step. Targets: at least
// 3 times with one caller, at least 10 times with 64.
func BenchmarkDBOS(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := server(b)
			ours := newGuarded(b, openStore(b, s.Database(b)))
			theirs := newDurable(b, s.Database(b))
			compare(b, callers, ours.fresh(newKeys("order")), theirs.fresh(newKeys("order")))
		})
	}
}

// BenchmarkReplay: an ask that is answered from the ledger against one read of a
// row by its key, on 100,000 settled calls. Target: at most 1.1 times as long.
func BenchmarkReplay(b *testing.B) {
	const settled, asked = 100_000, 1000
	s := server(b)
	ourURL, theirURL := s.Database(b), s.Database(b)
	st := openStore(b, ourURL)
	ours, theirs := newGuarded(b, st), newNaive(b, theirURL)
	k := newKeys("order")
	names := make([]string, asked)
	for i := range names {
		names[i] = k.next()
		must(b, ours.call(names[i], false))
		must(b, theirs.call(names[i]))
	}
	fill(b, st, settled-asked)
	theirs.fill(b, settled-asked)
	run(b, ourURL, `vacuum analyze`)
	run(b, theirURL, `vacuum analyze`, `checkpoint`)
	one := func() string { return names[rand.IntN(asked)] }
	ratio := compare(b, 1,
		side{"ours", func() error { return ours.call(one(), true) }},
		side{"read", func() error { return theirs.read(one()) }})
	b.ReportMetric(1/ratio, "time/read")
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
