package bench

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slice is how long one side runs before another takes over: long against a
// call, short against the changes of a machine's speed.
const slice = 250 * time.Millisecond

// side is one of the things that are compared; call makes one operation and is
// called by any number of goroutines.
type side struct {
	name string
	call func() error
}

// run makes calls on some callers for as long as more says so, and returns how
// many a second.
func (s side) run(b *testing.B, callers int, more func() bool) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for more() {
				if err := s.call(); err != nil {
					b.Errorf("%s: %v", s.name, err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return float64(done.Load()) / time.Since(start).Seconds()
}

// rate is run for one slice.
func (s side) rate(b *testing.B, callers int) float64 {
	b.Helper()
	end := time.Now().Add(slice)
	return s.run(b, callers, func() bool { return time.Now().Before(end) })
}

// compare alternates slices of ours and theirs, there and back in each
// iteration, and reports the medians of the rates and of the iterations' ratios
// of ours to theirs. It returns that ratio.
func compare(b *testing.B, callers int, ours, theirs side) float64 {
	b.Helper()
	ours.rate(b, callers) // connections, prepared statements, caches
	theirs.rate(b, callers)
	var us, them, ratios []float64
	for b.Loop() {
		a := ours.rate(b, callers)
		x := theirs.rate(b, callers) + theirs.rate(b, callers)
		a += ours.rate(b, callers)
		us, them, ratios = append(us, a/2), append(them, x/2), append(ratios, a/x)
	}
	ratio := median(ratios)
	b.ReportMetric(median(us), ours.name+"/s")
	b.ReportMetric(median(them), theirs.name+"/s")
	b.ReportMetric(ratio, "ratio/"+theirs.name)
	b.ReportMetric(0, "ns/op")
	return ratio
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
