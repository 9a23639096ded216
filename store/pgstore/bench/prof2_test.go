package bench

import (
	"fmt"
	"os"
	"testing"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

func BenchmarkExplain(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			srv := pgtest.Start(b, pgtest.Set("shared_preload_libraries", "auto_explain"), pgtest.Set("auto_explain.log_min_duration", "0"),
				pgtest.Set("auto_explain.log_analyze", "on"), pgtest.Set("auto_explain.log_timing", "on"), pgtest.Set("auto_explain.log_buffers", "on"), pgtest.Set("auto_explain.sample_rate", "0.01"), pgtest.Set("auto_explain.log_verbose", "off"))
			g := newGuarded(b, openStore(b, srv.Database(b, "jit=off"))).fresh(newKeys("order"))
			for b.Loop() {
				g.times(b, callers, 3000)
			}
			l, _ := os.ReadFile(srv.Dir() + "/log")
			os.WriteFile(fmt.Sprintf("/tmp/explain.%d", callers), l, 0o644)
		})
	}
}
