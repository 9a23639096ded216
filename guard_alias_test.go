package idem_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
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

// aliasRows notes every alias row that the latest guard writes.
type aliasRows struct {
	h    *house
	mu   sync.Mutex
	refs map[idem.Ref]bool
}

func (h *house) watchAliases() *aliasRows {
	w := &aliasRows{h: h, refs: map[idem.Ref]bool{}}
	h.last.judge = func(c idem.Change, _ func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range c.Marks {
			if m.Alias != nil {
				w.refs[m.Ref] = true
			}
		}
		for _, p := range c.Puts {
			if p.Alias != nil {
				w.refs[p.Ref] = true
			}
		}
		return idem.Stamp{}, nil, false
	}
	return w
}

// want checks how many rows were written, and how many are left.
func (w *aliasRows) want(written, left int) {
	w.h.t.Helper()
	w.mu.Lock()
	refs := slices.Collect(maps.Keys(w.refs))
	w.mu.Unlock()
	s, err := w.h.store.Load(context.Background(), refs...)
	if err != nil || len(refs) != written || len(s.Rows) != left {
		w.h.t.Errorf("%d aliases written, %d left, want %d and %d; err %v", len(refs), len(s.Rows), written, left, err)
	}
}

func TestAliasesOfJoins(t *testing.T) {
	timed(t, "live on the record, and go with it", func(t *testing.T, h *house) {
		h.acts(slowly(time.Second))
		g := h.guard()
		rows := h.watchAliases()
		c := g.Conn()
		op := make(chan idem.ID)
		go func() { op <- h.call(g, on(c, occ("call-1"))).Op }()
		time.Sleep(100 * time.Millisecond)
		h.call(g, on(g.Conn(), occ("call-2", "call-3")))
		id := <-op
		if n := len(h.record(id).Aliases); n != 3 {
			t.Errorf("%d aliases on the record", n)
		}
		rows.want(3, 3)
		c.Heard()
		h.passes(g, h.rules.OccurrenceRetention+time.Hour)
		if n := len(h.list(idem.Query{})); n != 0 {
			t.Errorf("%d operations are left", n)
		}
		rows.want(3, 0)
	})
	timed(t, "no more than 64", func(t *testing.T, h *house) {
		h.acts(slowly(time.Second))
		g := h.guard()
		op := make(chan idem.ID)
		go func() { op <- h.ask(g, on(g.Conn(), occ("call"))).Op }()
		time.Sleep(100 * time.Millisecond)
		var many []string
		for i := range 100 {
			many = append(many, "call-"+strconv.Itoa(i))
		}
		h.ask(g, on(g.Conn(), occ(many...)))
		if n := len(h.record(<-op).Aliases); n != 64 {
			t.Errorf("%d aliases on the record", n)
		}
	})
	for _, repeat := range []idem.Repeat{idem.RepeatReplay, idem.RepeatRefuse} {
		timed(t, "repeat: "+string(repeat)+" finds it without", func(t *testing.T, h *house) {
			h.rules.Repeat = repeat
			g := h.guard()
			rows := h.watchAliases()
			a := h.ask(g, occ("call-0"))
			for i := range 4 {
				wantResult(t, h.ask(g, occ("call-"+strconv.Itoa(i+1))), first, true)
			}
			time.Sleep(5 * time.Second)
			if n := len(h.record(a.Op).Aliases); n != 1 {
				t.Errorf("%d aliases on the record", n)
			}
			rows.want(1, 1)
			h.passes(g, h.rules.Retention+time.Hour)
			rows.want(1, 0)
		})
	}
}
