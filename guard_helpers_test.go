package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// occ is an ask that names neither step nor key.
func occ(alias ...string) idem.Ask {
	a := step("")
	a.Aliases = alias
	return a
}

func on(c *idem.Conn, a idem.Ask) idem.Ask { a.Conn = c; return a }

func inRun(run string, a idem.Ask) idem.Ask { a.Run = run; return a }

// timed runs a test on a clock of its own.
func timed(t *testing.T, name string, f func(t *testing.T, h *house)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, newHouse(t)) })
	})
}

// call asks as a client that gets its answer.
func (h *house) call(g *idem.Guard, a idem.Ask) idem.Answer {
	if a.Conn != nil {
		a.Conn.Heard()
	}
	ans := h.ask(g, a)
	ans.Deliver()(nil)
	return ans
}

// leave asks and goes away after d.
func (h *house) leave(g *idem.Guard, a idem.Ask, d time.Duration) idem.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return g.Do(ctx, a, h.effect())
}

// acts sets how attempts end, one after the other; the last one stays.
func (h *house) acts(list ...func(*world, idem.Dispatch) idem.Outcome) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	n := 0
	h.world.act = func(w *world, d idem.Dispatch) idem.Outcome {
		w.mu.Lock()
		f := list[min(n, len(list)-1)]
		n++
		w.mu.Unlock()
		return f(w, d)
	}
}

func applies(w *world, d idem.Dispatch) idem.Outcome { return answered(w.apply(d)) }

// slowly applies at once and answers late.
func slowly(d time.Duration) func(*world, idem.Dispatch) idem.Outcome {
	return func(w *world, dis idem.Dispatch) idem.Outcome {
		id := w.apply(dis)
		time.Sleep(d)
		return answered(id)
	}
}

// ends ends without an effect.
func ends(o idem.Outcome) func(*world, idem.Dispatch) idem.Outcome {
	return func(*world, idem.Dispatch) idem.Outcome { return o }
}

// recovers runs the recoverer of a guard until the test ends.
func (h *house) recovers(g *idem.Guard, servers ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Recover(ctx, "default", servers)
	}()
	stop = func() { cancel(); <-done }
	h.t.Cleanup(stop)
	return stop
}

func (h *house) list(q idem.Query) []*idem.Record {
	h.t.Helper()
	q.Limit = 1 << 20
	p, err := h.store.List(context.Background(), q)
	if err != nil {
		h.t.Fatal(err)
	}
	return p.Records
}
