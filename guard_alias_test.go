package idem_test

import (
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func TestAliases(t *testing.T) {
	timed(t, "a resend on another connection meets its operation", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ("call-1")))
		c.Heard() // delivered: without the alias the next would be a second one
		wantResult(t, h.call(g, on(g.Conn(), occ("call-1"))), first, true)
		wantResult(t, h.call(g, on(g.Conn(), occ("call-2"))), second, false)
	})
	timed(t, "on a connection that has its answer it is a new ask", func(t *testing.T, h *house) {
		g := h.guard()
		c := g.Conn()
		h.call(g, on(c, occ("call_0")))
		wantResult(t, h.call(g, on(c, occ("call_0"))), second, false)
		c.Heard()
		wantResult(t, h.call(g, on(g.Conn(), occ("call_0"))), second, true) // the later one owns it
	})
	timed(t, "of a join", func(t *testing.T, h *house) {
		h.acts(slowly(time.Second), applies)
		g := h.guard()
		go h.call(g, on(g.Conn(), occ("call-1")))
		time.Sleep(100 * time.Millisecond)
		c := g.Conn()
		wantResult(t, h.call(g, on(c, occ("call-2"))), first, true)
		c.Heard()
		time.Sleep(2 * time.Second)
		h.kill()
		g = h.guard()
		wantResult(t, h.call(g, on(g.Conn(), occ("call-2"))), first, true)
		wantResult(t, h.call(g, on(g.Conn(), occ("call-3"))), second, false)
	})
	timed(t, "of other arguments means nothing", func(t *testing.T, h *house) {
		g := h.guard()
		h.call(g, occ("call-1"))
		other := occ("call-1")
		other.Args = []byte(`{"order":"o2"}`)
		wantResult(t, h.call(g, other), second, false)
	})
	timed(t, "the same one twice in one ask", func(t *testing.T, h *house) {
		g := h.guard()
		wantResult(t, h.ask(g, occ("x", "x")), first, false)
	})
	timed(t, "a generic key beside a step is an alias only", func(t *testing.T, h *house) {
		g := h.guard()
		a := step("s1")
		a.Generic = "k1"
		h.ask(g, a)
		a.Generic = "k2" // fresh, as middleware makes it
		wantResult(t, h.ask(g, a), first, true)
		b := step("s2")
		b.Generic = "k1"
		wantResult(t, h.ask(g, b), second, false)
		bare := step("")
		bare.Generic = "k2"
		h.ask(g, bare)
		h.wantEffects(3) // k2 came with a replay: it names nothing yet
		bare.Generic = "k1"
		if r := h.ask(g, bare); !r.Replayed {
			t.Errorf("k1 was the alias of a step, result %s is no replay", r.Result)
		}
	})
}

func TestNamedKeys(t *testing.T) {
	timed(t, "the kind is part of the key", func(t *testing.T, h *house) {
		g := h.guard()
		host, generic := step(""), step("")
		host.HostKey, generic.Generic = "k", "k"
		h.ask(g, host)
		wantResult(t, h.ask(g, generic), second, false)
		wantResult(t, h.ask(g, host), first, true)
		wantResult(t, h.ask(g, generic), second, true)
		h.wantDispatches(2)
	})
	timed(t, "a host key is before a step, in any task", func(t *testing.T, h *house) {
		g := h.guard()
		a := step("s1")
		a.HostKey = "k"
		h.ask(g, a)
		a.Step, a.Task = "s2", "t2"
		wantResult(t, h.ask(g, a), first, true)
		a.Args = []byte(`{"order":"o2"}`)
		wantCode(t, h.ask(g, a), idem.CodeMismatch)
		a.Tenant = "other"
		wantResult(t, h.ask(g, a), second, false)
	})
	long := make([]byte, 256)
	for i := range long {
		long[i] = 'x'
	}
	for _, k := range []string{string(long), "a\nb", "ü", "\x7f"} {
		timed(t, "refused", func(t *testing.T, h *house) {
			g := h.guard()
			host, generic := step("s"), step("s")
			host.HostKey, generic.Generic = k, k
			wantCode(t, h.ask(g, host), idem.CodeInvalidArguments)
			wantCode(t, h.ask(g, generic), idem.CodeInvalidArguments)
			h.wantDispatches(0)
			if n := len(h.list(idem.Query{})); n != 0 {
				t.Errorf("%d rows", n)
			}
		})
	}
	timed(t, "255 characters do", func(t *testing.T, h *house) {
		a := step("")
		a.HostKey = string(long[:255])
		wantResult(t, h.ask(h.guard(), a), first, false)
	})
}
