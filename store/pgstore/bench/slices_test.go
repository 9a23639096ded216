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

// rate runs a side on n callers for a slice and returns operations a second.
func (s side) rate(b *testing.B, callers int) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(slice)
	for range callers {
		wg.Go(func() {
			for time.Now().Before(end) {
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

// compare alternates slices of ours and of the others, there and back in each
// iteration, and reports the medians of the rates and of the iterations'
// ratios of ours to each other.
func compare(b *testing.B, callers int, ours side, others ...side) {
	b.Helper()
	sides := append([]side{ours}, others...)
	for _, s := range sides {
		s.rate(b, callers) // connections, prepared statements, caches
	}
	rates := make([][]float64, len(sides))
	ratios := make([][]float64, len(sides))
	for b.Loop() {
		sum := make([]float64, len(sides))
		for i := range sides {
			sum[i] += sides[i].rate(b, callers)
		}
		for i := range slices.Backward(sides) {
			sum[i] += sides[i].rate(b, callers)
		}
		for i := range sides {
			rates[i] = append(rates[i], sum[i]/2)
			ratios[i] = append(ratios[i], sum[0]/sum[i])
		}
	}
	for i, s := range sides {
		b.ReportMetric(median(rates[i]), s.name+"/s")
		if i > 0 {
			b.ReportMetric(median(ratios[i]), "ratio/"+s.name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}
