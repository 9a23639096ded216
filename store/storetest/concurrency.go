package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// racers is how many goroutines race in each test.
const racers = 50

// race runs fn in every racer at once and returns when all are done.
func race(fn func(n int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for n := range racers {
		wg.Go(func() {
			<-start
			fn(n)
		})
	}
	close(start)
	wg.Wait()
}

func (s suite) concurrency(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"exactly one wins a version": raceVersion,
		"conflicts stay apart":       raceIsolation,
		"marks lose nothing":         raceMarks,
		"counter":                    raceCounter,
		"snapshots are consistent":   raceSnapshots,
	})
}

func conflicted(err error) bool {
	_, ok := errors.AsType[*idem.Conflict](err)
	return ok
}

// raceVersion: of all who need the same version, one succeeds, and what is
// stored is that one's.
func raceVersion(t *testing.T, k kit) {
	for round := range idem.Version(5) {
		var winner atomic.Value
		var wins atomic.Int32
		race(func(n int) {
			key := fmt.Sprint(n)
			c := puts(put(num(1), record(key)), idem.Row{Ref: ref(idem.KindSlot, 1), Slot: &idem.Slot{N: uint64(n)}})
			c.Needs = []idem.Need{need(op(num(1)), round), need(ref(idem.KindSlot, 1), round)}
			_, err := k.store.Commit(k.ctx(), c)
			switch {
			case err == nil:
				wins.Add(1)
				winner.Store(key)
			case !conflicted(err):
				t.Errorf("racer %d: %v", n, err)
			}
		})
		if wins.Load() != 1 {
			t.Fatalf("%d winners at version %d", wins.Load(), round)
		}
		snap := k.mustLoad(op(num(1)), ref(idem.KindSlot, 1))
		slot, v := snap.Slot(num(1))
		if r := snap.Operation(num(1)); r.Key != winner.Load() || fmt.Sprint(slot.N) != r.Key || r.Version != round+1 || v != round+1 {
			t.Fatalf("stored are %s and %d at %d and %d, the winner is %v", r.Key, slot.N, r.Version, v, winner.Load())
		}
	}
}

// raceIsolation: half of the changes cannot succeed; they take no other with
// them and leave nothing.
func raceIsolation(t *testing.T, k kit) {
	race(func(n int) {
		c := puts(put(num(n), record(fmt.Sprint(n))))
		c.Needs = []idem.Need{need(op(num(n)), idem.Version(n%2))} // absent rows: odd ones fail
		if _, err := k.store.Commit(k.ctx(), c); (n%2 == 1) != conflicted(err) || (n%2 == 0 && err != nil) {
			t.Errorf("racer %d: %v", n, err)
		}
	})
	for n := range racers {
		if got := k.mustLoad(op(num(n))).Operation(num(n)); (n%2 == 0) != (got != nil) {
			t.Errorf("row %d is there: %v", n, got != nil)
		}
	}
}

func raceMarks(t *testing.T, k kit) {
	race(func(n int) {
		c := deliver(idem.Delivered{Extra: []uint64{uint64(n) + 1}})
		c.Marks = append(c.Marks, idem.Mark{Ref: ref(idem.KindAlias, 1), Alias: &idem.Alias{Operation: num(n)}})
		if _, err := k.store.Commit(k.ctx(), c); err != nil {
			t.Errorf("racer %d: %v", n, err)
		}
	})
	snap := k.mustLoad(ref(idem.KindDelivery, 1), ref(idem.KindAlias, 1))
	k.equal(snap.Row(ref(idem.KindDelivery, 1)).Delivered, &idem.Delivered{Upto: racers})
	if v := snap.Row(ref(idem.KindAlias, 1)).Version; v != 1 {
		t.Fatalf("the alias was put %d times", v)
	}
}

// raceCounter: load, decide, commit, and again after a conflict, loses no step.
func raceCounter(t *testing.T, k kit) {
	slot := ref(idem.KindSlot, 1)
	ctx, cancel := context.WithTimeout(k.ctx(), time.Minute)
	defer cancel()
	race(func(n int) {
		for {
			snap, err := k.store.Load(ctx, slot)
			if err != nil {
				t.Errorf("racer %d: %v", n, err)
				return
			}
			have, v := snap.Slot(slot.ID)
			have.N++
			c := puts(idem.Row{Ref: slot, Slot: &have})
			c.Needs = []idem.Need{need(slot, v)}
			if _, err = k.store.Commit(ctx, c); err == nil {
				return
			}
			if !conflicted(err) {
				t.Errorf("racer %d: %v", n, err)
				return
			}
		}
	})
	if got, v := k.mustLoad(slot).Slot(slot.ID); got.N != racers || v != racers {
		t.Fatalf("counted %d at version %d, want %d", got.N, v, racers)
	}
}

// raceSnapshots: two rows that always change together are never seen apart.
func raceSnapshots(t *testing.T, k kit) {
	race(func(n int) {
		if n%2 == 0 {
			key := fmt.Sprint(n)
			if _, err := k.store.Commit(k.ctx(), puts(put(num(1), record(key)), put(num(2), record(key)))); err != nil {
				t.Errorf("racer %d: %v", n, err)
			}
			return
		}
		snap, err := k.store.Load(k.ctx(), op(num(1)), op(num(2)))
		if err != nil {
			t.Errorf("racer %d: %v", n, err)
			return
		}
		a, b := snap.Operation(num(1)), snap.Operation(num(2))
		if (a == nil) != (b == nil) || (a != nil && (a.Key != b.Key || a.Version != b.Version)) {
			t.Errorf("racer %d saw half a change", n)
		}
	})
}
