package idem_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// abstract is all of a record that decides what may happen to it, without its
// moments: events come an hour apart, so that every wait is over.
func abstract(r *idem.Record) string {
	b := make([]byte, 0, 160)
	str := func(s string) { b = append(append(b, s...), 0) }
	num := func(n uint64) { b = binary.AppendUvarint(b, n) }
	flag := func(f ...bool) {
		for _, v := range f {
			b = append(b, map[bool]byte{true: 1}[v])
		}
	}
	str(string(r.State))
	str(string(r.Reason))
	str(string(r.Class))
	str(string(r.Absence))
	str(r.ExternalID)
	b = append(b, r.Result...)
	num(uint64(r.CommittedBy))
	num(uint64(min(r.Duplicates, 2)))
	num(uint64(r.Round.Attempts))
	flag(r.Granted, r.Expired, r.Reconciled, r.RetryAt != 0, r.Reconcile.Next != 0, r.Reconcile.HasBase, r.ExpiresAt != 0, r.CommittedAt != 0, r.UnknownSince != 0)
	b = append(b, r.Reconcile.Lease.Token[0])
	for _, a := range r.Attempts {
		num(uint64(a.N))
		str(string(a.Class) + "/" + string(a.Closed) + "/" + a.ExternalID)
		flag(a.MayApplied, a.End != 0, a.Atomic)
	}
	if n := len(r.Decisions); n > 0 {
		d := r.Decisions[n-1]
		str(d.Verb)
		after := 0
		for _, a := range r.Attempts {
			if a.Start > d.At {
				after++
			}
		}
		num(uint64(after))
	}
	return string(b)
}

// recordLimit bounds one exploration of a setting that may not close: beyond
// it, random walks go deeper.
const recordLimit, walks, walkLength = 600, 800, 16

type exploration struct {
	states  map[idem.State]bool
	reasons map[idem.Reason]bool
	records int
	edges   int
	broken  map[string]string // one example of each kind
}

// explore visits reachable records breadth first: all of them where the setting
// closes, else the nearest, and walks at random from there on.
func explore(s setting) *exploration {
	x := &exploration{states: map[idem.State]bool{}, reasons: map[idem.Reason]bool{}, broken: map[string]string{}}
	start := &idem.Record{}
	if s.process {
		start.Incarnation = "i1"
	}
	seen := map[string]bool{abstract(start): true}
	queue := []*idem.Record{start}
	for len(queue) > 0 {
		r := queue[0]
		queue = queue[1:]
		x.records++
		before := deepCopy(r)
		for _, ev := range s.events(r) {
			n := x.step(s, r, ev)
			if n == nil {
				continue
			}
			if k := abstract(n); !seen[k] {
				seen[k] = true
				queue = append(queue, n)
			}
		}
		if !reflect.DeepEqual(before, r) {
			x.breaks("Next changed its input", show(r))
		}
		if x.records > recordLimit && !s.closes {
			x.walk(s, start)
			break
		}
	}
	return x
}

func (x *exploration) walk(s setting, start *idem.Record) {
	rnd := rand.New(rand.NewPCG(1, uint64(len(s.name))))
	for range walks {
		r := start
		for range walkLength {
			evs := s.events(r)
			if n := x.step(s, r, evs[rnd.IntN(len(evs))]); n != nil {
				r = n
			}
		}
	}
}

// step checks one edge; nil: it leads nowhere.
func (x *exploration) step(s setting, r *idem.Record, ev idem.Event) *idem.Record {
	x.edges++
	n, err := idem.Next(r, ev)
	for _, why := range checkEdge(s, r, ev, n, err) {
		x.breaks(why, fmt.Sprintf("%T %+v\nof %s\nto %s", ev, ev, show(r), show(n)))
	}
	if err != nil {
		return nil
	}
	x.states[n.State], x.states[n.Shown(n.UpdatedAt)] = true, true
	x.reasons[n.Reason] = true
	return n
}

func (x *exploration) breaks(why, example string) {
	if _, ok := x.broken[why]; !ok {
		x.broken[why] = example
	}
}

func deepCopy(r *idem.Record) *idem.Record {
	c := *r
	c.Attempts = append([]idem.Attempt(nil), r.Attempts...)
	c.Decisions = append([]idem.Decision(nil), r.Decisions...)
	c.Aliases = append([]idem.ID(nil), r.Aliases...)
	c.Reconcile.Baseline = append([]string(nil), r.Reconcile.Baseline...)
	c.Result = append([]byte(nil), r.Result...)
	return &c
}

func show(r *idem.Record) string {
	if r == nil {
		return "nothing"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q reason %q class %q absence %q id %q by %d dup %d granted %v expired %v result %q next %d retry %d", r.State, r.Reason, r.Class,
		r.Absence, r.ExternalID, r.CommittedBy, r.Duplicates, r.Granted, r.Expired, r.Result, r.Reconcile.Next, r.RetryAt)
	for _, a := range r.Attempts {
		fmt.Fprintf(&b, "\n   attempt %d class %q may %v atomic %v closed %q end %d id %q", a.N, a.Class, a.MayApplied, a.Atomic, a.Closed, a.End, a.ExternalID)
	}
	for _, d := range r.Decisions {
		fmt.Fprintf(&b, "\n   decision %s", d.Verb)
	}
	return b.String()
}

var allExplored = sync.OnceValue(func() []*exploration {
	var all []*exploration
	for _, s := range settings() {
		all = append(all, explore(s))
	}
	return all
})

// exploreAll explores every setting once per test binary.
func exploreAll(t *testing.T) (map[idem.State]bool, map[idem.Reason]bool) {
	t.Helper()
	states, reasons := map[idem.State]bool{}, map[idem.Reason]bool{}
	for i, x := range allExplored() {
		t.Logf("%s: %d records, %d edges", settings()[i].name, x.records, x.edges)
		for s := range x.states {
			states[s] = true
		}
		for r := range x.reasons {
			reasons[r] = true
		}
	}
	return states, reasons
}

func TestNextExhaustive(t *testing.T) {
	states, _ := exploreAll(t)
	for i, x := range allExplored() {
		for why, example := range x.broken {
			t.Errorf("%s: %s\n%s", settings()[i].name, why, example)
		}
	}
	for _, s := range idem.States() {
		if !states[s] {
			t.Errorf("no path of the machine leads to %s", s)
		}
	}
}
