package pgstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// tortureTime is how long the randomised tests go on, 0 for one short run.
func tortureTime(t testing.TB) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("IDEM_TORTURE"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustSeed(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestRandomChanges: whatever a Change is made of, the same becomes of it as in
// the ledger that is a map in memory.
func TestRandomChanges(t *testing.T) {
	l := mustLedger(t, pgtest.Shared(t).Database(t))
	rnd := mustSeed(t)
	end := time.Now().Add(tortureTime(t))
	randomChanges(t, l, rnd, 60)
	for time.Now().Before(end) && !t.Failed() {
		randomChanges(t, l, rnd, 1000)
	}
}

// randomChanges lets several at once make changes, each on rows of its own, so
// that they share statements and not rows.
func randomChanges(t *testing.T, l ledger, rnd *rand.Rand, steps int) {
	var seeds []uint64
	for range 8 {
		seeds = append(seeds, rnd.Uint64())
	}
	together(len(seeds), func(n int) {
		m := newModel(t, l, rand.New(rand.NewPCG(seeds[n], 0)))
		defer m.memory.Close()
		for range steps {
			if !m.step() {
				return
			}
		}
	})
}

// model makes the same changes in memory.
type model struct {
	t      *testing.T
	l      ledger
	rnd    *rand.Rand
	memory *memstore.Store
	refs   []idem.Ref
	ids    []idem.ID
	now    idem.Instant
}

func newModel(t *testing.T, l ledger, rnd *rand.Rand) *model {
	m := &model{t: t, l: l, rnd: rnd, memory: memstore.New(memstore.Config{})}
	for range 3 {
		m.ids = append(m.ids, id(int(rnd.Uint32())))
	}
	for _, kind := range idem.Kinds() {
		m.refs = append(m.refs, idem.Ref{Kind: kind, ID: m.ids[0]}, idem.Ref{Kind: kind, ID: m.ids[1]})
	}
	m.now = idem.InstantOf(time.Now())
	return m
}

func (m *model) chance(percent int) bool { return m.rnd.IntN(100) < percent }

func (m *model) load(s idem.Store) map[idem.Ref]idem.Row {
	snap, err := s.Load(m.t.Context(), m.refs...)
	if err != nil {
		m.t.Errorf("load: %v", err)
	}
	rows := map[idem.Ref]idem.Row{}
	for _, r := range snap.Rows {
		rows[r.Ref] = r
	}
	return rows
}

// step makes one change in both, and reports whether they agree.
func (m *model) step() bool {
	c := m.change(m.load(m.memory))
	_, want := m.memory.Commit(m.t.Context(), c)
	_, got := m.l.Commit(m.t.Context(), c)
	agree := conflicted(want) == conflicted(got) && (want == nil) == (got == nil)
	if conflict, ok := errors.AsType[*idem.Conflict](got); ok && agree { // of several needs that do not hold, any is named
		i := slices.IndexFunc(c.Needs, func(n idem.Need) bool { return n.Ref == conflict.Ref })
		_, want = m.memory.Commit(m.t.Context(), idem.Change{Needs: c.Needs[i : i+1]})
		agree = gocmp.Equal(want, error(conflict))
	}
	diff := gocmp.Diff(m.load(m.memory), m.load(m.l.Store), cmpopts.EquateEmpty())
	if !agree || diff != "" {
		m.t.Errorf("%+v\nended with %v, want %v\nrows (-want +got):\n%s", c, got, want, diff)
		return false
	}
	return true
}

// change makes up a change. About half of them can be applied.
func (m *model) change(have map[idem.Ref]idem.Row) idem.Change {
	var c idem.Change
	m.rnd.Shuffle(len(m.refs), func(i, j int) { m.refs[i], m.refs[j] = m.refs[j], m.refs[i] })
	for _, ref := range m.refs[:1+m.rnd.IntN(5)] {
		if m.chance(70) {
			c.Needs = append(c.Needs, m.need(ref, have[ref]))
		}
		switch {
		case m.chance(60):
			c.Puts = append(c.Puts, m.row(ref))
		case m.chance(30):
			c.Drops = append(c.Drops, ref)
		}
	}
	for m.chance(40) {
		if mark, ok := m.mark(m.refs[m.rnd.IntN(len(m.refs))]); ok {
			c.Marks = append(c.Marks, mark)
		}
	}
	return c
}

func (m *model) need(ref idem.Ref, have idem.Row) idem.Need {
	n := idem.Need{Ref: ref, Version: have.Version}
	if m.chance(8) {
		n.Version = idem.Version(m.rnd.IntN(3))
	}
	if m.chance(20) {
		n.Lease, n.Token = idem.LeaseNeed(m.rnd.IntN(3)), m.token()
	}
	return n
}

func (m *model) token() idem.Token { return idem.Token{byte(m.rnd.IntN(2))} }

func (m *model) id() idem.ID { return m.ids[m.rnd.IntN(len(m.ids))] }

// end is of a lease that is over, or will not be while the test runs.
func (m *model) end() idem.Instant {
	return m.now.Add(time.Duration(m.rnd.IntN(4)-1) * time.Hour)
}

func (m *model) row(ref idem.Ref) idem.Row {
	n := uint64(m.rnd.IntN(100))
	r := idem.Row{Ref: ref}
	switch ref.Kind {
	case idem.KindOperation:
		r.Operation = record(int(n))
		r.Operation.State = []idem.State{idem.StatePlanned, idem.StateStarted, idem.StateCommitted}[m.rnd.IntN(3)]
		// Puts under one claim have one end: a shorter one than before is not put
		// by anybody, and kept away here only.
		r.Operation.Lease = idem.Lease{Token: m.token()}
		if m.chance(80) {
			r.Operation.Lease.End = m.now.Add(time.Duration(2*int(r.Operation.Lease.Token[0])-1) * time.Hour)
		}
		r.Operation.Reconcile.Next = idem.Instant(n)
	case idem.KindKey:
		r.Key = &idem.KeyRow{Generation: uint32(n)}
	case idem.KindSlot:
		r.Slot = &idem.Slot{N: n}
		if m.chance(50) {
			r.Slot.Open = []idem.ID{m.id()}
		}
	case idem.KindDelivery:
		r.Delivered = m.delivered()
	case idem.KindAlias:
		r.Alias = &idem.Alias{Operation: m.id()}
	case idem.KindCommand:
		r.Command = &idem.CommandRow{Verb: fmt.Sprint(n)}
	case idem.KindTask:
		r.Task = &idem.TaskRow{Task: fmt.Sprint(n)}
	}
	return r
}

func (m *model) delivered() *idem.Delivered {
	d := &idem.Delivered{Upto: m.rnd.Uint64N(3)}
	for range m.rnd.IntN(4) {
		d.Add(1 + m.rnd.Uint64N(12))
	}
	return d
}

func (m *model) mark(ref idem.Ref) (idem.Mark, bool) {
	mark := idem.Mark{Ref: ref}
	switch ref.Kind {
	case idem.KindOperation:
		mark.LeaseEnd, mark.Token = m.end(), m.token()
	case idem.KindSlot:
		mark.Twin = m.id()
	case idem.KindDelivery:
		mark.Delivered = m.delivered()
	case idem.KindAlias:
		mark.Alias = &idem.Alias{Operation: m.id()}
	default:
		return mark, false
	}
	return mark, true
}
