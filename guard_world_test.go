package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// world is the outside system: it counts effects on its own, and its faults
// are set per test.
type world struct {
	mu      sync.Mutex
	effects []string // ids, in order
	keys    []string // key of each dispatch
	lookups int

	// act performs an attempt; nil: apply and answer well.
	act func(w *world, d idem.Dispatch) idem.Outcome
	// find answers a query; nil: every effect made under the key.
	find func(w *world, l idem.Lookup) (idem.Finding, error)
}

func (w *world) apply(d idem.Dispatch) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := fmt.Sprintf("T-%d", len(w.effects)+1)
	w.effects = append(w.effects, id+"/"+d.Key)
	return id
}

func (w *world) run(_ context.Context, d idem.Dispatch) idem.Outcome {
	w.mu.Lock()
	w.keys = append(w.keys, d.Key)
	act := w.act
	w.mu.Unlock()
	if act != nil {
		return act(w, d)
	}
	return answered(w.apply(d))
}

func answered(id string) idem.Outcome {
	return idem.Outcome{Class: idem.ClassSuccess, Result: []byte(`{"id":"` + id + `"}`), Kind: idem.ResultValue, ExternalID: id}
}

func (w *world) Query(_ context.Context, l idem.Lookup) (idem.Finding, error) {
	w.mu.Lock()
	w.lookups++
	find := w.find
	var f idem.Finding
	for _, e := range w.effects {
		var id, key string
		_, _ = fmt.Sscanf(e, "%s", &id)
		for i := range e {
			if e[i] == '/' {
				id, key = e[:i], e[i+1:]
			}
		}
		if key == l.Key {
			f.IDs = append(f.IDs, id)
			f.Result = []byte(`{"found":"` + id + `"}`)
		}
	}
	w.mu.Unlock()
	if find != nil {
		return find(w, l)
	}
	return f, nil
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.effects)
}

func (w *world) dispatches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keys)
}

// rules is a policy with one set of rules for every tool.
type rules struct{ all idem.Rules }

func (r rules) Rules(string) (idem.Rules, bool) { return r.all, true }

// without is a policy that does not know one tool.
type without struct {
	idem.Policy
	tool string
}

func (w without) Rules(tool string) (idem.Rules, bool) {
	r, ok := w.Policy.Rules(tool)
	return r, ok && tool != w.tool
}

// seen is an observer that counts.
type seen struct {
	mu   sync.Mutex
	what map[string]int
}

func (s *seen) Observe(o idem.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what == nil {
		s.what = map[string]int{}
	}
	s.what[o.What]++
}

func (s *seen) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.what[what]
}

func defaults() idem.Rules {
	return idem.Rules{
		Operation: "call", Repeat: idem.RepeatOccurrence, Wait: 2 * time.Second, Lease: 30 * time.Second,
		Retry: idem.Retry{MaxAttempts: 3, MaxElapsed: 2 * time.Minute, Delay: func(_ int, floor time.Duration) time.Duration {
			return max(floor, 100*time.Millisecond)
		}},
		FailureTTL: 10 * time.Minute, Retention: 720 * time.Hour, OccurrenceRetention: 48 * time.Hour,
	}
}

// processes knows which owners are dead.
type processes struct {
	mu    sync.Mutex
	dead  map[int]bool
	stuck atomic.Bool // groups cannot be ended
	slow  atomic.Bool // and one waits for it as long as one may
}

func (p *processes) Dead(o idem.Owner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead[o.PID]
}

func (p *processes) EndGroup(ctx context.Context, _ idem.Owner, _ idem.Group) bool {
	if p.slow.Load() {
		<-ctx.Done()
	}
	return !p.stuck.Load()
}

func (p *processes) kill(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead == nil {
		p.dead = map[int]bool{}
	}
	p.dead[pid] = true
}

// hang applies or not, and never answers: its process is killed meanwhile.
func (h *house) hang(apply bool) func(*world, idem.Dispatch) idem.Outcome {
	return func(w *world, d idem.Dispatch) idem.Outcome {
		if apply {
			w.apply(d)
		}
		w.mu.Lock()
		w.act = nil
		mine := h.last
		w.mu.Unlock()
		<-mine.dead
		return idem.Outcome{}
	}
}

// kill -9 of the latest guard.
func (h *house) kill() {
	h.procs.kill(h.pid)
	close(h.last.dead)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.guards[len(h.guards)-1].Close(gone)
}

// house is a ledger, a world and guards in front of it.
type house struct {
	last  *process
	t     *testing.T
	store idem.Store
	world *world
	procs *processes
	rules idem.Rules
	pid   int
	seen  *seen

	guards []*idem.Guard

	unknownTool string // a tool that no policy knows
	machine     string // of the next guard; empty: m
}

func newHouse(t *testing.T) *house {
	return &house{t: t, store: memstore.New(memstore.Config{}), world: &world{}, procs: &processes{}, rules: defaults(), seen: &seen{}}
}

// settle lets the world be asked.
func (h *house) reconcile(settle time.Duration) {
	h.rules.Query = &idem.QueryRules{Reconciler: h.world, Settle: settle, Every: 300 * time.Millisecond, GiveUp: time.Minute}
}

// guard is a new process.
func (h *house) guard() *idem.Guard {
	h.t.Helper()
	h.pid++
	h.world.mu.Lock()
	h.last = &process{Store: h.store, dead: make(chan struct{})}
	h.world.mu.Unlock()
	g, err := idem.New(idem.Config{Store: h.last, Policy: without{rules{h.rules}, h.unknownTool}, Observer: h.seen, Owner: idem.Owner{Machine: cmp.Or(h.machine, "m"), Boot: "b", PID: h.pid, Start: 1}, Processes: h.procs})
	if err != nil {
		h.t.Fatal(err)
	}
	h.guards = append(h.guards, g)
	h.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = g.Close(ctx)
	})
	return g
}

func (h *house) effect() idem.Effect { return idem.Effect{Run: h.world.run} }

func step(s string) idem.Ask {
	return idem.Ask{Tenant: "default", Tool: "tickets/create", Args: []byte(`{"order":"o1"}`), Task: "t1", Step: s}
}

func (h *house) ask(g *idem.Guard, a idem.Ask) idem.Answer {
	return g.Do(context.Background(), a, h.effect())
}

func (h *house) record(op idem.ID) *idem.Record {
	h.t.Helper()
	s, err := h.store.Load(context.Background(), idem.Ref{Kind: idem.KindOperation, ID: op})
	if err != nil {
		h.t.Fatal(err)
	}
	r := s.Operation(op)
	if r == nil {
		h.t.Fatalf("no record of %s", op)
	}
	return r
}

func (h *house) wantEffects(n int) {
	h.t.Helper()
	if got := h.world.count(); got != n {
		h.t.Errorf("%d effects, want %d", got, n)
	}
}

func (h *house) wantDispatches(n int) {
	h.t.Helper()
	if got := h.world.dispatches(); got != n {
		h.t.Errorf("%d dispatches, want %d", got, n)
	}
}

func wantCode(t *testing.T, a idem.Answer, codes ...idem.Code) {
	t.Helper()
	for _, c := range codes {
		if a.Err != nil && a.Err.Code == c {
			return
		}
	}
	t.Errorf("answer %s (err %v), want code %v", a.Result, a.Err, codes)
}

func wantResult(t *testing.T, a idem.Answer, result string, replayed bool) {
	t.Helper()
	if a.Err != nil || string(a.Result) != result || a.Replayed != replayed {
		t.Errorf("result %s, replayed %v, err %v; want %s, %v", a.Result, a.Replayed, a.Err, result, replayed)
	}
}

func (h *house) wantState(op idem.ID, s idem.State) *idem.Record {
	h.t.Helper()
	r := h.record(op)
	if r.State != s {
		h.t.Errorf("state %s (%s), want %s", r.State, r.Reason, s)
	}
	return r
}

var errDown = errors.New("the search is down")
