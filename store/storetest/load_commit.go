package storetest

import (
	"context"
	"errors"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// rows returns one row of every kind.
func rows() []idem.Row {
	return []idem.Row{
		put(num(1), started("a", idem.Token{7}, 99)),
		{Ref: ref(idem.KindKey, 1), Key: &idem.KeyRow{Generation: 2}},
		{Ref: ref(idem.KindSlot, 1), Slot: &idem.Slot{N: 3, Floor: 1, Open: []idem.ID{num(1)}}},
		{Ref: ref(idem.KindDelivery, 1), Delivered: &idem.Delivered{Upto: 2, Extra: []uint64{5}}},
		{Ref: ref(idem.KindAlias, 1), Alias: &idem.Alias{Operation: num(1)}},
		{Ref: ref(idem.KindCommand, 1), Command: &idem.CommandRow{Operation: num(1), Verb: "committed", Version: 1, At: 4}},
		{Ref: ref(idem.KindTask, 1), Task: &idem.TaskRow{Tenant: "t", Task: "order-17", Notes: []idem.Note{{Kind: "ref", Name: "pr", Value: "42", At: 5}}}},
	}
}

func (s suite) load(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"every kind as it was put": func(t *testing.T, k kit) {
			all := rows()
			k.mustCommit(puts(all...))
			var refs []idem.Ref
			for i := range all {
				refs = append(refs, all[i].Ref)
			}
			snap := k.mustLoad(refs...)
			for _, want := range all {
				want.Version = 1
				if want.Operation != nil {
					want.Operation.Version = 1
				}
				k.equal(snap.Row(want.Ref), want)
			}
		},
		"missing rows are left out": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			snap := k.mustLoad(op(num(1)), op(num(2)), ref(idem.KindSlot, 1))
			if len(snap.Rows) != 1 || snap.Operation(num(2)) != nil {
				t.Fatalf("%d rows, want 1", len(snap.Rows))
			}
			k.equal(len(k.mustLoad().Rows), 0)
		},
		"rows are the caller's": func(t *testing.T, k kit) {
			mine := started("a", idem.Token{1}, 1)
			k.mustCommit(puts(put(num(1), mine)))
			mine.Args[0], mine.Attempts[0].N = 'X', 77
			loaded := k.mustRecord(num(1))
			loaded.Args[0], loaded.Attempts[0].N = 'Y', 88
			again := k.mustRecord(num(1))
			if again.Args[0] != '{' || again.Attempts[0].N != 1 {
				t.Fatal("a caller's change reached the store")
			}
		},
		"a context that ended": func(t *testing.T, k kit) {
			ctx, cancel := context.WithCancel(k.ctx())
			cancel()
			if _, err := k.store.Load(ctx, op(num(1))); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v", err)
			}
		},
	})
}

func (s suite) commit(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"versions count from 1": func(t *testing.T, k kit) {
			for v := idem.Version(1); v <= 3; v++ {
				k.mustCommit(puts(put(num(1), record("a"))))
				if got := k.mustRecord(num(1)).Version; got != v {
					t.Fatalf("version %d, want %d", got, v)
				}
			}
		},
		"drops": func(t *testing.T, k kit) {
			k.mustCommit(puts(rows()...))
			var c idem.Change
			for _, r := range rows() {
				c.Drops = append(c.Drops, r.Ref, idem.Ref{Kind: r.Ref.Kind, ID: num(9)})
			}
			k.mustCommit(c)
			k.equal(len(k.mustLoad(c.Drops...).Rows), 0)
			k.equal(k.keys(idem.Query{Order: idem.ByState, State: idem.StateStarted}), []string{})
			k.equal(k.keys(idem.Query{Order: idem.ByTask, Tenant: "acme", Task: "task"}), []string{})
		},
		"a stamp is a reading of the clock": func(t *testing.T, k kit) {
			before := k.mustClock()
			stamp := k.mustCommit(puts(put(num(1), record("a"))))
			if after := k.mustClock(); stamp.Time < before || stamp.Time > after {
				t.Fatalf("stamp %d is not between %d and %d", stamp.Time, before, after)
			}
		},
		"malformed changes": func(t *testing.T, k kit) {
			two := put(num(1), record("a"))
			two.Slot = &idem.Slot{}
			for name, c := range map[string]idem.Change{
				"no content":       puts(idem.Row{Ref: op(num(1))}),
				"two contents":     puts(two),
				"another kind":     puts(idem.Row{Ref: ref(idem.KindSlot, 1), Key: &idem.KeyRow{}}),
				"put twice":        puts(put(num(1), record("a")), put(num(1), record("b"))),
				"put and dropped":  {Puts: []idem.Row{put(num(1), record("a"))}, Drops: []idem.Ref{op(num(1))}},
				"an empty mark":    {Marks: []idem.Mark{{Ref: ref(idem.KindAlias, 1)}}},
				"a mark elsewhere": {Marks: []idem.Mark{{Ref: ref(idem.KindSlot, 1), Alias: &idem.Alias{}}}},
			} {
				_, err := k.store.Commit(k.ctx(), c)
				if _, conflict := errors.AsType[*idem.Conflict](err); err == nil || conflict || errors.Is(err, idem.ErrCommitUnknown) {
					t.Errorf("%s: error %v", name, err)
				}
			}
			k.equal(len(k.mustLoad(op(num(1))).Rows), 0)
		},
		"a context that ended": func(t *testing.T, k kit) {
			ctx, cancel := context.WithCancel(k.ctx())
			cancel()
			if _, err := k.store.Commit(ctx, puts(put(num(1), record("a")))); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v", err)
			}
			k.equal(len(k.mustLoad(op(num(1))).Rows), 0)
		},
	})
}

func (s suite) needs(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"absent": func(t *testing.T, k kit) {
			c := puts(put(num(1), record("a")))
			c.Needs = []idem.Need{need(op(num(1)), 0)}
			k.mustCommit(c)
			_, err := k.store.Commit(k.ctx(), c)
			got, _ := errors.AsType[*idem.Conflict](err)
			k.equal(got, &idem.Conflict{Ref: op(num(1)), Have: 1, Want: 0, Why: "version"})
		},
		"exact": func(t *testing.T, k kit) {
			slot := idem.Row{Ref: ref(idem.KindSlot, 1), Slot: &idem.Slot{N: 1}}
			k.mustCommit(puts(slot))
			k.mustCommit(puts(slot))
			for v := range idem.Version(4) {
				c := idem.Change{Needs: []idem.Need{need(slot.Ref, v)}}
				if v == 2 {
					k.mustCommit(c)
				} else {
					k.mustConflict(c, "version")
				}
			}
		},
		"all or nothing": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("old"))))
			c := puts(put(num(1), record("new")), idem.Row{Ref: ref(idem.KindSlot, 1), Slot: &idem.Slot{N: 1}})
			c.Needs = []idem.Need{need(op(num(1)), 1), need(op(num(2)), 5)}
			c.Drops = []idem.Ref{ref(idem.KindKey, 1)}
			c.Marks = []idem.Mark{{Ref: ref(idem.KindAlias, 1), Alias: &idem.Alias{Operation: num(1)}}}
			k.mustConflict(c, "version")
			snap := k.mustLoad(op(num(1)), ref(idem.KindSlot, 1), ref(idem.KindAlias, 1))
			if len(snap.Rows) != 1 || snap.Operation(num(1)).Key != "old" || snap.Operation(num(1)).Version != 1 {
				t.Fatalf("a refused change left something: %v", snap.Rows)
			}
		},
		"dropped is absent": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			k.mustCommit(idem.Change{Drops: []idem.Ref{op(num(1))}})
			c := puts(put(num(1), record("b")))
			c.Needs = []idem.Need{need(op(num(1)), 0)}
			k.mustCommit(c)
		},
	})
}
