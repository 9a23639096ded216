package pgstore

import (
	"slices"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// waiting is a plan that touches some rows.
func waiting(size int, rows ...byte) *plan {
	p := &plan{size: size, refs: map[idem.Ref]struct{}{}, done: make(chan verdict, 1)}
	for _, r := range rows {
		p.refs[idem.Ref{Kind: idem.KindOperation, ID: idem.ID{r}}] = struct{}{}
	}
	return p
}

// TestLaneGroups: a group is those that waited longest, as far as they go
// together.
func TestLaneGroups(t *testing.T) {
	many := make([]*plan, groupMax+3)
	for i := range many {
		many[i] = waiting(1, byte(i))
	}
	a, again, b, ab, c := waiting(1, 1), waiting(1, 1), waiting(1, 2), waiting(1, 1, 2), waiting(1, 3)
	small, big, huge := waiting(1, 1), waiting(groupBytes-1, 2), waiting(3*groupBytes, 3)
	for name, tc := range map[string]struct{ waiting, group []*plan }{
		"one row is in one":    {[]*plan{a, again, b, ab, c}, []*plan{a, b, c}},
		"not too many":         {many, many[:groupMax]},
		"not too large":        {[]*plan{small, huge, big}, []*plan{small, big}},
		"a large one is alone": {[]*plan{huge, small, big}, []*plan{huge}},
	} {
		l := &lanes{}
		l.waiting = slices.Clone(tc.waiting)
		if got := l.next(); !slices.Equal(got, tc.group) {
			t.Errorf("%s: a group of %d, want %d", name, len(got), len(tc.group))
		}
		rest := len(tc.waiting) - len(tc.group)
		if len(l.waiting) != rest {
			t.Errorf("%s: %d are left, want %d", name, len(l.waiting), rest)
		}
	}
}

// TestLanes: those who find a lane take it, and more than one where the others are
// slow; the rest waits, and can leave until a lane has them.
func TestLanes(t *testing.T) {
	l := &lanes{}
	enter := func(p *plan, want bool) {
		t.Helper()
		if taken, err := l.enter(p); taken != want || err != nil {
			t.Fatalf("a lane was taken: %v, %v", taken, err)
		}
	}
	p, q := waiting(1, 2), waiting(1, 3)
	enter(waiting(1, 1), true)
	enter(p, false)
	for range laneMax - 1 {
		l.begun = time.Now().Add(-2 * laneSlow)
		enter(waiting(1, 1), true)
		enter(waiting(1, 1), false)
		l.waiting = l.waiting[:1]
	}
	l.begun = time.Now().Add(-2 * laneSlow)
	enter(q, false) // there are enough
	if !l.drop(p) || l.drop(p) {
		t.Error("who waits cannot leave, or can twice")
	}
	if got := l.next(); !slices.Equal(got, []*plan{q}) || l.drop(q) {
		t.Error("who left is sent, or who is sent can leave")
	}
	for range laneMax {
		if l.next() != nil {
			t.Error("somebody waits still")
		}
	}
	l.close()
	if _, err := l.enter(p); err == nil {
		t.Error("a closed lane is taken")
	}
}
