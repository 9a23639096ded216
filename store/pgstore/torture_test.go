package pgstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// TestTortureFaults: whatever happens to the server and to the way to it, in any
// order, no caller is told anything that is not so. IDEM_TORTURE=10m makes it go
// on for so long.
func TestTortureFaults(t *testing.T) {
	t.Parallel()
	rnd := mustSeed(t)
	s := pgtest.Start(t)
	end := time.Now().Add(tortureTime(t))
	for round := 0; round == 0 || time.Now().Before(end) && !t.Failed(); round++ {
		t.Run(fmt.Sprint(round), func(t *testing.T) { torture(t, s, rnd, 4) })
	}
}

func torture(t *testing.T, s *pgtest.Server, rnd *rand.Rand, faults int) {
	url := s.Database(t)
	p := s.Proxy(t)
	l, near := mustLedger(t, p.Through(url)), mustLedger(t, url)
	far, there := gather(t, l, 0, 24, 3), gather(t, near, 100, 8, 3)
	for range faults {
		far.busy(50)
		var name string
		switch rnd.IntN(9) {
		case 0:
			name = "kill"
			s.Kill()
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			s.Start()
		case 1:
			name = "restart, fast"
			s.Restart(pgtest.Fast)
		case 2:
			name = "restart, immediate"
			s.Restart(pgtest.Immediate)
		case 3:
			name = "pause"
			s.Pause()
			time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			s.Resume()
		case 4:
			name = "cut"
			p.Cut()
			time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			p.Restore()
		case 5:
			name = "cut in the middle of answers"
			p.CutAfterBytes(pgtest.Down, rnd.IntN(3000))
			time.Sleep(500 * time.Millisecond)
			p.Heal()
		case 6:
			name = "cut in the middle of requests"
			p.CutAfterBytes(pgtest.Up, rnd.IntN(6000))
			time.Sleep(500 * time.Millisecond)
			p.Heal()
		case 7:
			name = "forget"
			p.Forget()
		case 8:
			name = "end sessions"
			sql(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mcp-idem' AND random() < 0.7`)
		}
		t.Log(name)
	}
	there.busy(20)
	there.dismiss(near)
	far.dismiss(near)
}
