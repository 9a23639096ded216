package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

func cpuGo() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func cpuPG(dir string) time.Duration {
	b, _ := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	ppid := strings.SplitN(string(b), "\n", 2)[0]
	var sum int64
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		s := string(b)
		s = s[strings.LastIndex(s, ")")+2:]
		fs := strings.Fields(s)
		if fs[1] != ppid {
			continue
		}
		var u, k int64
		fmt.Sscan(fs[11], &u)
		fmt.Sscan(fs[12], &k)
		sum += u + k
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

func BenchmarkProf(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B, url string) side
	}{
		{"ours", func(b *testing.B, url string) side { return newGuarded(b, openStore(b, url)).fresh(newKeys("order")) }},
		{"naive", func(b *testing.B, url string) side { return newNaive(b, url).fresh(newKeys("order")) }},
		{"dbos", func(b *testing.B, url string) side { return newDurable(b, url).fresh(newKeys("order")) }},
		{"replay", func(b *testing.B, url string) side {
			g := newGuarded(b, openStore(b, url))
			must(b, g.call("k", false))
			return side{"replay", func() error { return g.call("k", true) }}
		}},
		{"read", func(b *testing.B, url string) side {
			g := newNaive(b, url)
			must(b, g.call("k"))
			return side{"read", func() error { return g.read("k") }}
		}},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", c.name, callers), func(b *testing.B) {
				srv := pgtest.Start(b, pgtest.Set("shared_preload_libraries", "pg_stat_statements"), pgtest.Set("pg_stat_statements.track_planning", "on"))
				url := srv.Database(b, "jit=off")
				s := c.open(b, url)
				ctx := context.Background()
				conn, err := pgx.Connect(ctx, url)
				must(b, err)
				_, err = conn.Exec(ctx, "create extension pg_stat_statements")
				must(b, err)
				s.times(b, callers, 200)
				conn.Exec(ctx, "select pg_stat_statements_reset()")
				n := 1000
				if callers > 1 {
					n = 4000
				}
				var calls int
				g0, p0, t0 := cpuGo(), cpuPG(srv.Dir()), time.Now()
				for b.Loop() {
					s.times(b, callers, n)
					calls += n
				}
				el := time.Since(t0)
				per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(calls) }
				b.ReportMetric(per(cpuGo()-g0), "go-cpu-us/op")
				b.ReportMetric(per(cpuPG(srv.Dir())-p0), "pg-cpu-us/op")
				b.ReportMetric(per(el), "us/op")
				b.ReportMetric(0, "ns/op")
				rows, err := conn.Query(ctx, "select calls, mean_exec_time*1000, min_exec_time*1000, plans, left(regexp_replace(query,'\\s+',' ','g'),100) from pg_stat_statements order by total_exec_time+total_plan_time desc limit 8")
				must(b, err)
				for rows.Next() {
					var cl, plans int64
					var ex, pl float64
					var q string
					must(b, rows.Scan(&cl, &ex, &pl, &plans, &q))
					b.Logf("%.2f/op exec %.0fus min %.0fus plans %d: %s", float64(cl)/float64(calls), ex, pl, plans, q)
				}
			})
		}
	}
}
