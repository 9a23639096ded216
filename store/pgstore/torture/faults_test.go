package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// breaker breaks things by a schedule that the seed gives, and mends them.
type breaker struct {
	t       *testing.T
	rng     *rand.Rand
	server  *pgtest.Server
	proxies [hosts]*pgtest.Proxy
	cut     [hosts]bool
	traps   [hosts][]*pgtest.Trap
	hosts   [hosts]*process
	crashes []moment // of the server
	log     []string
}

// fault is one step of a schedule.
type fault struct {
	at   time.Duration
	what string
	do   func()
}

// schedule has a timeline for each host's network, each host's process, and the
// server.
func (b *breaker) schedule(p plan) []fault {
	var all []fault
	for i := range hosts {
		b.line(&all, 1200*time.Millisecond, func(at time.Duration) time.Duration { return b.network(&all, i, at) })
		b.line(&all, 2500*time.Millisecond, func(at time.Duration) time.Duration { return b.life(&all, i, at, p.lease) })
	}
	if b.rng.IntN(10) < 7 {
		all = append(all, b.crash(between(b.rng, workTime/5, workTime*4/5)))
	}
	slices.SortStableFunc(all, func(x, y fault) int { return int(x.at - y.at) })
	return all
}

// line adds faults until the work is over, with pauses between them.
func (b *breaker) line(all *[]fault, pause time.Duration, add func(at time.Duration) (until time.Duration)) {
	for at := between(b.rng, 0, pause); at < workTime; at += between(b.rng, pause/4, pause) {
		at = add(at)
	}
}

func (b *breaker) network(all *[]fault, i int, at time.Duration) (until time.Duration) {
	words := []string{"", "operation", "insert", "update"}
	switch b.rng.IntN(4) {
	case 0, 1:
		until = at + between(b.rng, 10*time.Millisecond, 900*time.Millisecond)
		*all = append(*all,
			fault{at, "cut", func() { b.proxies[i].Cut(); b.cut[i] = true }},
			fault{until, "restore", func() { b.restore(i) }})
		return until
	case 2:
		sql := words[b.rng.IntN(len(words))]
		*all = append(*all, fault{at, "lose an answer", func() { b.traps[i] = append(b.traps[i], b.proxies[i].DropNextResponse(sql)) }})
	default:
		sql := words[b.rng.IntN(len(words))]
		*all = append(*all, fault{at, "lose a request", func() { b.traps[i] = append(b.traps[i], b.proxies[i].DropNextRequest(sql)) }})
	}
	return at
}

func (b *breaker) life(all *[]fault, i int, at, lease time.Duration) (until time.Duration) {
	h := b.hosts[i]
	switch b.rng.IntN(3) {
	case 0:
		until = at + between(b.rng, time.Millisecond, 500*time.Millisecond)
		*all = append(*all, fault{at, "kill", h.kill}, fault{until, "start", h.start})
	case 1:
		until = at + between(b.rng, lease/2, 3*lease)
		*all = append(*all, fault{at, "pause", h.pause}, fault{until, "resume", h.resume})
	default:
		until = at + between(b.rng, lease, 2*lease)
		*all = append(*all, fault{at, "pause", h.pause}, fault{until, "kill paused", func() { h.kill(); h.start() }})
	}
	return until
}

func (b *breaker) crash(at time.Duration) fault {
	pause := between(b.rng, 0, 500*time.Millisecond)
	how, what := b.server.Kill, "server killed"
	switch b.rng.IntN(5) {
	case 0, 1:
		how, what = func() { b.server.Stop(pgtest.Fast) }, "server restarted"
	case 2:
		how, what = func() { b.server.Stop(pgtest.Immediate) }, "server stopped"
	}
	return fault{at, what, func() {
		b.crashes = append(b.crashes, now())
		how()
		time.Sleep(pause)
		b.server.Start()
	}}
}

// run breaks by the schedule. Steps that a slow one delays follow at once.
func (b *breaker) run(began moment, all []fault) {
	for _, f := range all {
		if f.at > workTime {
			break
		}
		time.Sleep(began.add(f.at).sub(now()))
		b.log = append(b.log, f.what)
		f.do()
	}
	time.Sleep(began.add(workTime).sub(now()))
	for i, h := range b.hosts {
		b.restore(i)
		h.resume()
		if !h.running() {
			h.start()
		}
	}
}

func (b *breaker) restore(i int) {
	if b.cut[i] {
		b.proxies[i].Restore()
		b.cut[i] = false
	}
}

// spring makes the traps snap that nobody has met.
func (b *breaker) spring() {
	b.t.Helper()
	for i, traps := range b.traps {
		for _, trap := range traps {
			for end := time.Now().Add(30 * time.Second); !trap.Sprung(); {
				if time.Now().After(end) {
					b.t.Fatal("a trap does not snap")
				}
				b.step(b.proxies[i])
			}
		}
	}
}

// step walks through a proxy with a statement that every trap waits for.
func (b *breaker) step(p *pgtest.Proxy) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return
	}
	_, _ = conn.Exec(ctx, "SELECT 1 -- operation insert update")
	_ = conn.Close(ctx)
}
