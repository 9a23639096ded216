package bench

import (
	"fmt"
	"testing"
)

func BenchmarkTry(b *testing.B) {
	for _, conns := range []int{4, 8, 16, 20, 32, 64} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			naive := newNaive(b, database(b), max(4, conns))
			dur := newDurable(b, database(b), conns)
			compare(b, 64, naive.fresh(newKeys("k")), dur.fresh("dbos", newKeys("k")))
		})
	}
}
