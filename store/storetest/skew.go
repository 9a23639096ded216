package storetest

import (
	"fmt"
	"sync"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// together runs n functions at once and returns when all are done.
func together(n int, fn func(n int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// skew: a need is a promise about a row until the change is applied, also where
// the change does not put that row.
func (s suite) skew(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"each needs absent what the other puts":    skewAbsent,
		"each needs unchanged what the other puts": skewPresent,
		"many need one row":                        skewShared,
	})
}

// skewRounds is how often two changes race.
const skewRounds = 12

// pairs are two rows that two changes write across, of every combination of
// tables that a store may have.
func pairs(round int) (x, y idem.Row) {
	slot := idem.Row{Ref: ref(idem.KindSlot, 2*round), Slot: &idem.Slot{N: 1}}
	key := idem.Row{Ref: ref(idem.KindKey, 2*round+1), Key: &idem.KeyRow{Generation: 2}}
	a, b := put(num(2*round), record("a")), put(num(2*round+1), record("b"))
	switch round % 3 {
	case 0:
		return a, b
	case 1:
		return a, key
	default:
		return slot, key
	}
}

// cross commits two changes at once, each of which puts one of the rows and
// needs the other one, and returns which of them were applied.
func (k kit) cross(stores []idem.Store, x, y idem.Row, v idem.Version) [2]bool {
	k.Helper()
	changes := [2]idem.Change{
		{ID: idem.ChangeID{1}, Puts: []idem.Row{x}, Needs: []idem.Need{need(y.Ref, v)}},
		{ID: idem.ChangeID{2}, Puts: []idem.Row{y}, Needs: []idem.Need{need(x.Ref, v)}},
	}
	var applied [2]bool
	together(2, func(n int) {
		_, err := stores[n%len(stores)].Commit(k.ctx(), changes[n])
		if applied[n] = err == nil; err != nil && !conflicted(err) {
			k.Errorf("change %d: %v", n, err)
		}
	})
	return applied
}

func skewAbsent(t *testing.T, k kit) {
	stores := k.handles(2)
	for round := range skewRounds {
		x, y := pairs(round)
		applied := k.cross(stores, x, y, 0)
		snap := k.mustLoad(x.Ref, y.Ref)
		if applied[0] == applied[1] || len(snap.Rows) != 1 || (snap.Row(x.Ref).Version == 1) != applied[0] {
			t.Fatalf("round %d: applied %v, stored %v", round, applied, snap.Rows)
		}
	}
}

func skewPresent(t *testing.T, k kit) {
	stores := k.handles(2)
	for round := range skewRounds {
		x, y := pairs(round)
		k.mustCommit(puts(x, y))
		applied := k.cross(stores, x, y, 1)
		snap := k.mustLoad(x.Ref, y.Ref)
		if sum := snap.Row(x.Ref).Version + snap.Row(y.Ref).Version; applied[0] == applied[1] || sum != 3 {
			t.Fatalf("round %d: applied %v, stored %v", round, applied, snap.Rows)
		}
	}
}

// skewShared: a need of a row that nobody puts is in nobody's way.
func skewShared(t *testing.T, k kit) {
	stores := k.handles(3)
	for name, v := range map[string]idem.Version{"absent": 0, "present": 1} {
		row := idem.Row{Ref: ref(idem.KindKey, int(v)), Key: &idem.KeyRow{Generation: 1}}
		if v > 0 {
			k.mustCommit(puts(row))
		}
		together(12, func(n int) {
			c := puts(put(num(100*int(v)+n), record(fmt.Sprint(n))))
			c.Needs = []idem.Need{need(row.Ref, v)}
			if _, err := stores[n%len(stores)].Commit(k.ctx(), c); err != nil {
				t.Errorf("%s: change %d: %v", name, n, err)
			}
		})
		if got := k.mustLoad(row.Ref).Row(row.Ref).Version; got != v {
			t.Errorf("%s: the row is at version %d after needs of it", name, got)
		}
	}
}
