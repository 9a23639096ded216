package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// randomTime bounds a random test: a store that is slow makes fewer steps.
const randomTime = 2 * time.Second

func (s suite) random(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"changes and snapshots have one order": randomOrder,
		"deliveries are unions":                randomUnions,
		"deliveries step by step":              randomSteps,
	})
}

func (k kit) rand() *rand.Rand {
	k.Helper()
	seed := rand.Uint64()
	k.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomOrder: changes that need rows at the versions of a snapshot, and put
// some of them, race over few rows. Whatever they and the snapshots saw fits one
// order in which they happened one after the other.
func randomOrder(t *testing.T, k kit) {
	rows := []idem.Row{
		put(num(1), record("a")), put(num(2), record("b")), {Ref: ref(idem.KindKey, 1), Key: &idem.KeyRow{}},
		{Ref: ref(idem.KindSlot, 1), Slot: &idem.Slot{N: 1}}, {Ref: ref(idem.KindCommand, 1), Command: &idem.CommandRow{}},
	}
	refs := make([]idem.Ref, len(rows))
	for i := range rows {
		refs[i] = rows[i].Ref
	}
	stores := k.handles(2)
	rnd := k.rand()
	h := &history{}
	ctx, cancel := context.WithTimeout(k.ctx(), randomTime)
	defer cancel()
	var rnds []*rand.Rand
	for range 6 {
		rnds = append(rnds, rand.New(rand.NewPCG(rnd.Uint64(), 0)))
	}
	together(len(rnds), func(n int) {
		rnd, st := rnds[n], stores[n%len(stores)]
		for range 40 {
			look := h.begin()
			snap, err := st.Load(ctx, refs...)
			if err != nil {
				k.late(ctx, err)
				return
			}
			for i, ref := range refs {
				look.reads[i] = snap.Row(ref).Version
			}
			h.end(look)
			c := idem.Change{ID: idem.ChangeID{byte(n), byte(rnd.Uint32())}}
			change := h.begin()
			for i, ref := range refs {
				if v := snap.Row(ref).Version; rnd.IntN(2) == 0 {
					c.Needs = append(c.Needs, need(ref, v))
					change.reads[i] = v
					if rnd.IntN(2) == 0 {
						c.Puts = append(c.Puts, rows[i])
						change.writes = append(change.writes, i)
					}
				}
			}
			switch _, err := st.Commit(ctx, c); {
			case err == nil:
				h.end(change)
			case !conflicted(err):
				k.late(ctx, err)
				return
			}
		}
	})
	h.check(t, len(rows))
	snap := k.mustLoad(refs...)
	for i, ref := range refs {
		if v := snap.Row(ref).Version; v != h.written(i) {
			t.Errorf("row %d is at version %d after %d changes", i, v, h.written(i))
		}
	}
	t.Logf("%d changes and snapshots", len(h.done))
}

// late reports an error, unless it is that of a time that is over.
func (k kit) late(ctx context.Context, err error) {
	k.Helper()
	if ctx.Err() == nil {
		k.Error(err)
	}
}

// event is a change that was applied, or a snapshot: the versions that it found
// and the rows that it raised by one.
type event struct {
	reads    map[int]idem.Version // by row
	writes   []int
	from, to int // moments at which it began and was over
}

// history collects events of several goroutines.
type history struct {
	mu   sync.Mutex
	now  int
	done []*event
}

func (h *history) tick() int {
	h.now++
	return h.now
}

func (h *history) begin() *event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &event{reads: map[int]idem.Version{}, from: h.tick()}
}

func (h *history) end(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.to = h.tick()
	h.done = append(h.done, e)
}

func (h *history) written(row int) (n idem.Version) {
	for _, e := range h.done {
		if slices.Contains(e.writes, row) {
			n++
		}
	}
	return n
}

// check fails the test if the events fit no order. Who wrote a version comes
// before who found it, and that one before who wrote the next; and what was over
// before another began comes before it. They fit an order if no event comes
// before itself.
func (h *history) check(t *testing.T, rows int) {
	t.Helper()
	// Beside the events the order holds the moments, each before the next.
	n := len(h.done)
	after := make([][]int, n+h.now+2)
	before := make([]int, len(after))
	add := func(a, b int) { after[a], before[b] = append(after[a], b), before[b]+1 }
	for m := range h.now {
		add(n+m, n+m+1)
	}
	for i, e := range h.done {
		add(n+e.from, i)
		add(i, n+e.to)
	}
	for row := range rows {
		writer := map[idem.Version]int{}
		for i, e := range h.done {
			if slices.Contains(e.writes, row) {
				v := e.reads[row] + 1
				if other, twice := writer[v]; twice {
					t.Fatalf("row %d: version %d was written twice, by %v and %v", row, v, *h.done[other], *e)
				}
				writer[v] = i
			}
		}
		for i, e := range h.done {
			v, ok := e.reads[row]
			if !ok {
				continue
			}
			if w, ok := writer[v]; ok {
				add(w, i)
			} else if v > 0 {
				t.Fatalf("row %d: version %d was found, and nobody wrote it", row, v)
			}
			if w, ok := writer[v+1]; ok && w != i {
				add(i, w)
			}
		}
	}
	var ready []int
	for i := range after {
		if before[i] == 0 {
			ready = append(ready, i)
		}
	}
	for ; len(ready) > 0; ready = ready[1:] {
		for _, next := range after[ready[0]] {
			if before[next]--; before[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	for i := range h.done {
		if before[i] > 0 {
			t.Errorf("no order fits this event and others: %+v", *h.done[i])
		}
	}
}

func randomDelivered(rnd *rand.Rand) *idem.Delivered {
	d := &idem.Delivered{}
	if rnd.IntN(3) == 0 {
		d.Upto = rnd.Uint64N(12)
	}
	for range rnd.IntN(4) {
		d.Add(1 + rnd.Uint64N(24))
	}
	return d
}

// randomUnions: whoever marks what and when, all of it is there in the end.
func randomUnions(_ *testing.T, k kit) {
	const sets = 3
	stores := k.handles(2)
	rnd := k.rand()
	var want [sets]idem.Delivered
	var changes [][]idem.Change
	for range 6 {
		var own []idem.Change
		for range 8 {
			var c idem.Change
			for range 1 + rnd.IntN(4) {
				n, d := rnd.IntN(sets), randomDelivered(rnd)
				want[n].Merge(d)
				c.Marks = append(c.Marks, idem.Mark{Ref: ref(idem.KindDelivery, n), Delivered: d})
			}
			own = append(own, c)
		}
		changes = append(changes, own)
	}
	together(len(changes), func(n int) {
		for _, c := range changes[n] {
			if _, err := stores[n%len(stores)].Commit(k.ctx(), c); err != nil {
				k.Error(err)
			}
		}
	})
	for n := range want {
		k.equal(k.mustLoad(ref(idem.KindDelivery, n)).Row(ref(idem.KindDelivery, n)).Delivered, &want[n])
	}
}

// randomSteps: the set is what idem.Delivered makes of it, and a mark that adds
// nothing raises no version.
func randomSteps(t *testing.T, k kit) {
	rnd := k.rand()
	row := ref(idem.KindDelivery, 1)
	want := &idem.Delivered{}
	var version idem.Version
	for range 40 {
		d := randomDelivered(rnd)
		was := *want
		was.Extra = slices.Clone(want.Extra)
		want.Merge(d)
		if version == 0 || was.Upto != want.Upto || !slices.Equal(was.Extra, want.Extra) {
			version++
		}
		k.mustCommit(deliver(*d))
		got := k.mustLoad(row).Row(row)
		k.equal(got.Delivered, want)
		if got.Version != version {
			t.Fatalf("version %d after %+v into %+v, want %d", got.Version, *d, was, version)
		}
	}
}
