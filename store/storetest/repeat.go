package storetest

import (
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// repeat: a change that is committed again under its id, as after
// ErrCommitUnknown, is decided by its needs.
func (s suite) repeat(t *testing.T) {
	id := idem.ChangeID{7}
	s.each(t, map[string]func(*testing.T, kit){
		"it was applied": func(t *testing.T, k kit) {
			c := puts(put(num(1), record("a")), idem.Row{Ref: ref(idem.KindSlot, 1), Slot: &idem.Slot{N: 1}})
			c.ID, c.Needs = id, []idem.Need{need(op(num(1)), 0), need(ref(idem.KindSlot, 1), 0)}
			k.mustCommit(c)
			// A store that knows the id may say that it is done.
			if _, err := k.store.Commit(k.ctx(), c); err != nil && !conflicted(err) {
				t.Fatal(err)
			}
			for _, r := range k.mustLoad(op(num(1)), ref(idem.KindSlot, 1)).Rows {
				if r.Version != 1 {
					t.Errorf("row of kind %d is at version %d", r.Ref.Kind, r.Version)
				}
			}
		},
		"another one came between": func(t *testing.T, k kit) {
			c := puts(put(num(1), record("a")))
			c.ID, c.Needs = id, []idem.Need{need(op(num(1)), 0)}
			k.mustCommit(c)
			k.mustCommit(puts(put(num(1), record("b"))))
			if _, err := k.store.Commit(k.ctx(), c); !conflicted(err) {
				t.Fatalf("error %v, want a conflict", err)
			}
			if r := k.mustRecord(num(1)); r.Key != "b" || r.Version != 2 {
				t.Fatalf("%s at version %d, want b at 2", r.Key, r.Version)
			}
		},
		"it was not applied": func(_ *testing.T, k kit) {
			c := puts(put(num(1), record("a")))
			c.ID, c.Needs = id, []idem.Need{need(op(num(1)), 0), need(ref(idem.KindKey, 1), 1)}
			k.mustConflict(c, "version")
			k.mustCommit(puts(idem.Row{Ref: ref(idem.KindKey, 1), Key: &idem.KeyRow{}}))
			k.mustCommit(c)
			k.equal(k.mustRecord(num(1)).Version, idem.Version(1))
		},
		"marks": func(_ *testing.T, k kit) {
			end := k.claim(leaseTime)
			marks := []idem.Mark{
				{Ref: ref(idem.KindDelivery, 1), Delivered: &idem.Delivered{Upto: 1, Extra: []uint64{4}}},
				{Ref: ref(idem.KindAlias, 1), Alias: &idem.Alias{Operation: num(1)}},
				{Ref: ref(idem.KindSlot, 1), Twin: num(1)},
				{Ref: op(num(1)), LeaseEnd: end + 1000, Token: mine},
			}
			refs := make([]idem.Ref, len(marks))
			for i := range marks {
				refs[i] = marks[i].Ref
			}
			k.mustCommit(idem.Change{ID: id, Marks: marks})
			want := k.mustLoad(refs...)
			k.mustCommit(idem.Change{ID: id, Marks: marks})
			again := k.mustLoad(refs...)
			k.equal(len(want.Rows), len(refs))
			for _, ref := range refs {
				k.equal(again.Row(ref), want.Row(ref))
			}
		},
	})
}
