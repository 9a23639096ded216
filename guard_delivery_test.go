package idem_test

import (
	"errors"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

var errGone = errors.New("the client is gone")

// TestDelivery: a second ask, on another connection, is a replay unless the
// first answer was delivered.
func TestDelivery(t *testing.T) {
	tests := []struct {
		name   string
		hand   func(h *house, g *idem.Guard, c *idem.Conn)
		replay bool
	}{
		{"handed over, nothing heard", func(h *house, g *idem.Guard, c *idem.Conn) { h.call(g, on(c, occ())) }, true},
		{"handed over and heard", func(h *house, g *idem.Guard, c *idem.Conn) { h.call(g, on(c, occ())); c.Heard() }, false},
		{"without a connection", func(h *house, g *idem.Guard, _ *idem.Conn) { h.call(g, occ()) }, false},
		{"never handed over, as when cancelled", func(h *house, g *idem.Guard, c *idem.Conn) { h.ask(g, on(c, occ())); c.Heard() }, true},
		{"the write failed", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			a.Deliver()(errGone)
			c.Heard()
		}, true},
		{"the write failed after something was heard", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			c.Heard()
			done(errGone)
			c.Heard()
		}, true},
		{"the write is still under way", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			a.Deliver()
			c.Heard()
		}, true},
		{"heard during the write only", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			c.Heard()
			done(nil)
		}, true},
		{"heard as the write ended", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			c.Heard()
			time.Sleep(10 * time.Millisecond)
			done(nil)
			time.Sleep(200 * time.Millisecond)
		}, false},
		{"heard as the write ended, and cancelled", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			c.Heard()
			done(nil)
			time.Sleep(50 * time.Millisecond)
			done(errGone)
			time.Sleep(200 * time.Millisecond)
		}, true},
		{"heard long before the write ended", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			c.Heard()
			time.Sleep(time.Second)
			done(nil)
			time.Sleep(time.Second)
		}, true},
		{"heard during the write and after", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			c.Heard()
			done(nil)
			c.Heard()
		}, false},
		{"cancelled when it was written", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			done(nil)
			done(errGone)
			c.Heard()
		}, true},
		{"cancelled when it was sure", func(h *house, g *idem.Guard, c *idem.Conn) {
			a := h.ask(g, on(c, occ()))
			done := a.Deliver()
			done(nil)
			c.Heard()
			done(errGone)
		}, false},
		{"later than the client's patience", func(h *house, g *idem.Guard, c *idem.Conn) {
			h.acts(slowly(56*time.Second), applies)
			h.call(g, on(c, occ()))
			c.Heard()
		}, true},
		{"just within it", func(h *house, g *idem.Guard, c *idem.Conn) {
			h.acts(slowly(54*time.Second), applies)
			h.call(g, on(c, occ()))
			c.Heard()
		}, false},
	}
	for _, tt := range tests {
		timed(t, tt.name, func(t *testing.T, h *house) {
			g := h.guard()
			tt.hand(h, g, g.Conn())
			a := h.call(g, on(g.Conn(), occ()))
			if tt.replay {
				wantResult(t, a, first, true)
			} else {
				wantResult(t, a, second, false)
			}
		})
	}
}

// TestDeliveryOnOneConnection: a fast client's next ask comes before the write
// of the answer is known to have succeeded.
func TestDeliveryOnOneConnection(t *testing.T) {
	timed(t, "the write is still under way", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		a := h.ask(g, on(c, occ()))
		done := a.Deliver()
		wantResult(t, h.ask(g, on(c, occ())), first, true) // asked before it had the answer
		c.Heard()
		wantResult(t, h.ask(g, on(g.Conn(), occ())), first, true)
		wantResult(t, h.ask(g, on(c, occ())), second, false)
		done(nil)
		h.wantEffects(2)
	})
	timed(t, "call ids are taken back with the mark", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		a := h.ask(g, on(c, occ("call_0")))
		done := a.Deliver()
		done(nil)
		done(errGone)
		c.Heard()
		wantResult(t, h.ask(g, on(c, occ("call_0"))), first, true)
		h.wantEffects(1)
	})
}

func TestMarks(t *testing.T) {
	deliver := func(h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ()))
		c.Heard()
	}
	timed(t, "lost ones mean a replay", func(t *testing.T, h *house) {
		deliver(h)
		h.kill()
		wantResult(t, h.call(h.guard(), occ()), first, true)
		h.wantEffects(1)
	})
	timed(t, "durable within a second", func(t *testing.T, h *house) {
		deliver(h)
		time.Sleep(time.Second + time.Millisecond)
		h.kill()
		wantResult(t, h.call(h.guard(), occ()), second, false)
	})
	timed(t, "they ride in the next commit", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ()))
		c.Heard()
		h.ask(g, step("other"))
		h.kill()
		wantResult(t, h.call(h.guard(), occ()), `{"id":"T-3"}`, false)
	})
	timed(t, "one sync a second for all together", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		for i := range 20 {
			a := occ()
			a.Args = []byte(`{"n":` + string(rune('1'+i%9)) + `}`)
			h.ask(g, a)
		}
		time.Sleep(2 * time.Second)
		before := h.last.commits.Load()
		for i := range 9 {
			a := occ()
			a.Args = []byte(`{"n":` + string(rune('1'+i)) + `}`)
			h.call(g, on(c, a))
			c.Heard()
		}
		time.Sleep(3 * time.Second)
		if n := h.last.commits.Load() - before; n != 1 {
			t.Errorf("%d commits for the marks of 9 replays, want 1", n)
		}
	})
	timed(t, "kept while the ledger cannot be written", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ()))
		c.Heard()
		h.last.fail(errDisk)
		time.Sleep(5 * time.Second)
		h.last.fail(nil)
		time.Sleep(2 * time.Second)
		h.kill()
		wantResult(t, h.call(h.guard(), occ()), second, false)
	})
}
