package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

func (s suite) move(t *testing.T) {
	if !s.have.Moves {
		t.Skip("this store's rows are not moved (Features.Moves)")
	}
	s.each(t, map[string]func(*testing.T, kit){
		"every kind, in order, at its version": moveAll,
		"to another store":                     moveToAnother,
		"a random ledger":                      moveRandom,
		"one snapshot":                         moveSnapshot,
		"extended leases": func(_ *testing.T, k kit) {
			now := k.mustClock()
			k.mustCommit(puts(put(num(1), started("a", idem.Token{1}, now.Add(time.Hour)))))
			k.mustCommit(idem.Change{Marks: []idem.Mark{{Ref: op(num(1)), LeaseEnd: now.Add(2 * time.Hour), Token: idem.Token{1}}}})
			rows, _ := k.mustExport()
			k.equal(rows[0].Operation.Lease.End, now.Add(2*time.Hour))
		},
		"nothing": func(_ *testing.T, k kit) {
			rows, now := k.mustExport()
			k.equal(len(rows), 0)
			other := k.another()
			k.equal(other.mustImport(now, nil), 0)
			other.mustCommit(puts(put(num(1), record("a"))))
		},
		"what the receiver says": func(t *testing.T, k kit) {
			k.mustCommit(puts(rows()...))
			enough, n := errors.New("enough"), 0
			_, err := k.mover().Export(k.ctx(), func(idem.Row) error {
				if n++; n == 2 {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) || n != 2 {
				t.Fatalf("error %v after %d rows", err, n)
			}
			k.mustCommit(puts(put(num(1), record("a")))) // nothing is left locked
		},
		"the clock": func(t *testing.T, k kit) {
			later := k.mustClock().Add(time.Hour)
			k.mustImport(later, nil)
			now := k.mustClock()
			if now < later {
				t.Fatalf("the clock is %v behind", later.Sub(now))
			}
			s.pass(k.sub, 20*time.Millisecond)
			if d := k.mustClock().Sub(now); d < 20*time.Millisecond {
				t.Fatalf("20ms are %v", d)
			}
			k = k.another()
			now = k.mustClock()
			k.mustImport(now.Add(-time.Hour), nil)
			if then := k.mustClock(); then < now {
				t.Fatalf("the clock went back %v", now.Sub(then))
			}
		},
		"into an empty ledger only": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(9), record("mine"))))
			err := k.refusedImport(stored(rows()...))
			if !strings.Contains(err.Error(), "not empty") {
				t.Fatalf("error %v", err)
			}
			got, _ := k.mustExport()
			k.equal(got, stored(put(num(9), record("mine"))))
		},
		"rows that do not fit": moveRefused,
	})
}

func moveAll(t *testing.T, k kit) {
	all := stored(rows()...)
	for i := range all {
		all[i].Version = idem.Version(i + 1)
		for range i + 1 {
			k.mustCommit(puts(all[i]))
		}
		if all[i].Operation != nil {
			all[i].Operation.Version = all[i].Version
		}
	}
	stamp := k.mustCommit(idem.Change{Puts: []idem.Row{put(num(5), record("z"))}})
	all = append(all, stored(put(num(5), record("z")))...)
	slices.SortFunc(all, func(a, b idem.Row) int { return a.Ref.Compare(b.Ref) })
	got, now := k.mustExport()
	k.equal(got, all)
	if now < stamp.Time {
		t.Fatalf("the clock of the snapshot is %v before a commit in it", stamp.Time.Sub(now))
	}
}

func moveToAnother(t *testing.T, k kit) {
	for _, r := range rows() {
		k.mustCommit(puts(r))
		k.mustCommit(puts(r))
	}
	k.mustCommit(puts(put(num(2), due("b", 5))))
	moved, now := k.mustExport()
	other := k.another()
	if n := other.mustImport(now, moved); n != len(moved) {
		t.Fatalf("%d rows were imported, want %d", n, len(moved))
	}
	again, _ := other.mustExport()
	other.equal(again, moved)
	if there := other.mustClock(); there < now {
		t.Fatalf("the clock went back %v", now.Sub(there))
	}
	// Versions decide there as here, and the indexes know the rows.
	slot := ref(idem.KindSlot, 1)
	other.mustConflict(idem.Change{Needs: []idem.Need{need(slot, 1)}}, "version")
	c := puts(put(num(1), record("a")))
	c.Needs = []idem.Need{need(slot, 2), need(op(num(1)), 2)}
	other.equal(other.keys(idem.Query{Order: idem.ByState, State: idem.StateStarted}), []string{"a"})
	other.mustCommit(c)
	other.equal(other.mustRecord(num(1)).Version, idem.Version(3))
	other.equal(other.keys(idem.Query{Order: idem.ByState, State: idem.StateStarted}), []string{})
	other.equal(other.keys(idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets", Until: 50}), []string{"b"})
	other.equal(len(other.keys(idem.Query{Order: idem.ByTask, Tenant: "acme", Task: "task"})), 2)
	other.equal(len(other.keys(idem.Query{Order: idem.ByID, Limit: 1})), 2)
}

func moveRandom(t *testing.T, k kit) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var c idem.Change
	for n := range 3000 { // more than one batch of any store
		switch rnd.IntN(3) {
		case 0:
			r := due(fmt.Sprint(n), idem.Instant(rnd.IntN(9)+1))
			r.Result = make([]byte, rnd.IntN(3000))
			r.Text = string([]byte{0xff, byte(n)}) // what comes from outside is not always text
			c.Puts = append(c.Puts, put(num(n), r))
		case 1:
			c.Puts = append(c.Puts, idem.Row{Ref: ref(idem.KindAlias, n), Alias: &idem.Alias{Operation: num(n)}})
		default:
			c.Puts = append(c.Puts, idem.Row{Ref: ref(idem.KindSlot, n), Slot: &idem.Slot{N: rnd.Uint64()}})
		}
		if len(c.Puts) == 100 {
			k.mustCommit(c)
			c = idem.Change{}
		}
	}
	moved, now := k.mustExport()
	k.equal(len(moved), 3000)
	other := k.another()
	other.mustImport(now, moved)
	again, _ := other.mustExport()
	k.equal(len(again), len(moved))
	for i := range moved { // by their encoding: a comparison by reflection takes minutes
		a, aerr := codec.Body(&again[i])
		b, berr := codec.Body(&moved[i])
		if aerr != nil || berr != nil || !bytes.Equal(a, b) || again[i].Version != moved[i].Version {
			k.equal(again[i], moved[i])
		}
	}
}

// moveSnapshot: two rows that are always written together are never seen apart.
func moveSnapshot(t *testing.T, k kit) {
	pair := func() idem.Change {
		return puts(put(num(1), record("a")), idem.Row{Ref: ref(idem.KindCommand, 1), Command: &idem.CommandRow{}})
	}
	k.mustCommit(pair())
	ctx, stop := context.WithCancel(k.ctx())
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := k.store.Commit(ctx, pair()); err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				done <- err
				return
			}
		}
	}()
	first, _ := k.mustExport()
	for last := first; last[0].Version < first[0].Version+20; {
		last, _ = k.mustExport()
		if last[0].Version != last[1].Version {
			t.Errorf("versions %d and %d in one snapshot", last[0].Version, last[1].Version)
			break
		}
	}
	stop()
	if err := within(t, soon, "commit", done); err != nil {
		t.Fatal(err)
	}
}

func moveRefused(t *testing.T, k kit) {
	good := stored(rows()...)
	broken := errors.New("broken off")
	for name, bad := range map[string]struct {
		row idem.Row
		err error
	}{
		"kind and content differ": {row: idem.Row{Ref: ref(idem.KindSlot, 7), Version: 1, Key: &idem.KeyRow{}}},
		"no content":              {row: idem.Row{Ref: ref(idem.KindCommand, 7), Version: 1}},
		"an unknown kind":         {row: idem.Row{Ref: ref(200, 7), Version: 1, Key: &idem.KeyRow{}}},
		"no version":              {row: idem.Row{Ref: ref(idem.KindCommand, 7), Command: &idem.CommandRow{}}},
		"comes twice":             {row: good[len(good)-1]},
		"out of order":            {row: good[0]},
		"the source breaks off":   {err: broken},
	} {
		_, err := k.mover().Import(k.ctx(), k.mustClock(), func(yield func(idem.Row, error) bool) {
			for _, r := range good {
				if !yield(r, nil) {
					return
				}
			}
			yield(bad.row, bad.err)
		})
		switch {
		case err == nil:
			t.Fatalf("%s: imported", name)
		case bad.err != nil && !errors.Is(err, bad.err):
			t.Errorf("%s: error %v", name, err)
		case bad.err == nil && (!strings.Contains(err.Error(), fmt.Sprintf("after the first %d", len(good))) || !strings.Contains(err.Error(), bad.row.Ref.ID.String())):
			t.Errorf("%s: error %v, want the row's place", name, err)
		}
		if left, _ := k.mustExport(); len(left) > 0 {
			t.Fatalf("%s: %d rows are left", name, len(left))
		}
	}
	// The ledger is as it was: good for use, and for the import.
	k.mustCommit(puts(put(num(1), record("a"))))
	k.mustCommit(idem.Change{Drops: []idem.Ref{op(num(1))}})
	k.equal(k.mustImport(k.mustClock(), good), len(good))
}

// stored gives rows the version of their first commit, in order.
func stored(rows ...idem.Row) []idem.Row {
	for i := range rows {
		rows[i].Version = 1
		if rows[i].Operation != nil {
			rows[i].Operation.Version = 1
		}
	}
	return rows
}

func each(rows []idem.Row) iter.Seq2[idem.Row, error] {
	return func(yield func(idem.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// another is an empty store of the same kind.
func (k kit) another() kit {
	k.sub = k.suite.factory(k.T)
	k.store = k.sub.Store
	return k
}

func (k kit) mover() Mover {
	k.Helper()
	m, ok := k.store.(Mover)
	if !ok {
		k.Fatalf("%T is no Mover, as Features.Moves says", k.store)
	}
	return m
}

func (k kit) mustExport() (rows []idem.Row, now idem.Instant) {
	k.Helper()
	now, err := k.mover().Export(k.ctx(), func(r idem.Row) error { rows = append(rows, r); return nil })
	if err != nil {
		k.Fatalf("export: %v", err)
	}
	return rows, now
}

func (k kit) mustImport(now idem.Instant, rows []idem.Row) int {
	k.Helper()
	n, err := k.mover().Import(k.ctx(), now, each(rows))
	if err != nil {
		k.Fatalf("import: %v", err)
	}
	return n
}

func (k kit) refusedImport(rows []idem.Row) error {
	k.Helper()
	n, err := k.mover().Import(k.ctx(), k.mustClock(), each(rows))
	if err == nil {
		k.Fatalf("%d rows were imported", n)
	}
	return err
}
