package storetest

import (
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

var mine, other = idem.Token{1, 2, 3}, idem.Token{4, 5, 6}

func leaseNeed(v idem.Version, l idem.LeaseNeed, token idem.Token) idem.Change {
	return idem.Change{Needs: []idem.Need{{Ref: op(num(1)), Version: v, Lease: l, Token: token}}}
}

func extend(token idem.Token, end idem.Instant) idem.Change {
	return idem.Change{Marks: []idem.Mark{{Ref: op(num(1)), LeaseEnd: end, Token: token}}}
}

// claim stores an operation under a claim of mine. Its end is counted from a
// commit: what a handle tells of the clock may be behind.
func (k kit) claim(d time.Duration) (end idem.Instant) {
	k.Helper()
	end = k.mustCommit(idem.Change{}).Time.Add(d)
	k.mustCommit(puts(put(num(1), started("a", mine, end))))
	return end
}

func (s suite) lease(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"held until its end": func(t *testing.T, k kit) {
			k.claim(leaseTime)
			k.mustCommit(leaseNeed(1, idem.LeaseHeld, mine))
			k.mustConflict(leaseNeed(1, idem.LeaseHeld, other), "lease")
			k.mustConflict(leaseNeed(1, idem.LeaseOver, idem.Token{}), "lease")
			s.pass(k.sub, leaseTime)
			k.mustConflict(leaseNeed(1, idem.LeaseHeld, mine), "lease")
			k.mustCommit(leaseNeed(1, idem.LeaseOver, idem.Token{}))
		},
		"nobody holds it": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			k.mustCommit(leaseNeed(1, idem.LeaseOver, idem.Token{}))
			k.mustConflict(leaseNeed(1, idem.LeaseHeld, idem.Token{}), "lease")
		},
		"the version counts too": func(t *testing.T, k kit) {
			k.claim(time.Hour)
			k.mustConflict(leaseNeed(2, idem.LeaseHeld, mine), "version")
		},
		"extended by a mark": func(t *testing.T, k kit) {
			end := k.claim(leaseTime)
			k.mustCommit(extend(mine, end.Add(time.Hour)))
			s.pass(k.sub, leaseTime)
			k.mustCommit(leaseNeed(1, idem.LeaseHeld, mine))
			k.mustConflict(leaseNeed(1, idem.LeaseOver, idem.Token{}), "lease")
			r := k.mustRecord(num(1))
			if r.Lease.End != end.Add(time.Hour) || r.Version != 1 {
				t.Fatalf("lease end %d at version %d, want %d at 1", r.Lease.End, r.Version, end.Add(time.Hour))
			}
		},
		"marks are a maximum": func(t *testing.T, k kit) {
			end := k.claim(time.Hour)
			for _, minutes := range []int{2, 5, 3, -100} {
				k.mustCommit(extend(mine, end.Add(time.Duration(minutes)*time.Minute)))
			}
			if got := k.mustRecord(num(1)).Lease.End; got != end.Add(5*time.Minute) {
				t.Fatalf("lease end %d, want %d", got, end.Add(5*time.Minute))
			}
		},
		"a mark is of one claim": func(t *testing.T, k kit) {
			end := k.claim(time.Hour)
			k.mustCommit(extend(other, end.Add(time.Hour)))
			if got := k.mustRecord(num(1)).Lease.End; got != end {
				t.Fatalf("another's mark moved the end to %d", got)
			}
			k.mustCommit(extend(mine, end.Add(time.Hour)))
			k.mustCommit(puts(put(num(1), started("a", other, end))))
			if got := k.mustRecord(num(1)).Lease.End; got != end {
				t.Fatalf("a former claim's mark moved the end to %d", got)
			}
		},
		"a mark ends with the attempt": func(t *testing.T, k kit) {
			end := k.claim(time.Hour)
			k.mustCommit(extend(mine, end.Add(time.Hour)))
			r := k.mustRecord(num(1))
			r.State, r.Lease.End = idem.StateUnknown, 0
			k.mustCommit(puts(put(num(1), r)))
			k.mustCommit(leaseNeed(2, idem.LeaseOver, idem.Token{}))
			k.mustCommit(extend(mine, end.Add(2*time.Hour)))
			if got := k.mustRecord(num(1)).Lease.End; got != 0 {
				t.Fatalf("lease end %d, want none", got)
			}
		},
		"a mark on nothing": func(t *testing.T, k kit) {
			k.mustCommit(extend(mine, 5))
			k.equal(len(k.mustLoad(op(num(1))).Rows), 0)
		},
		"a mark in the change that claims": func(t *testing.T, k kit) {
			end := k.mustClock().Add(time.Hour)
			c := puts(put(num(1), started("a", mine, end)))
			c.Marks = extend(mine, end.Add(time.Hour)).Marks
			k.mustCommit(c)
			if got := k.mustRecord(num(1)).Lease.End; got != end.Add(time.Hour) {
				t.Fatalf("lease end %d, want %d", got, end.Add(time.Hour))
			}
		},
	})
}

func deliver(d idem.Delivered) idem.Change {
	return idem.Change{Marks: []idem.Mark{{Ref: ref(idem.KindDelivery, 1), Delivered: &d}}}
}

func (s suite) marks(t *testing.T) {
	delivered := func(k kit) *idem.Delivered {
		return k.mustLoad(ref(idem.KindDelivery, 1)).Row(ref(idem.KindDelivery, 1)).Delivered
	}
	s.each(t, map[string]func(*testing.T, kit){
		"deliveries are a union": func(t *testing.T, k kit) {
			k.mustCommit(deliver(idem.Delivered{Extra: []uint64{3}}))
			k.mustCommit(deliver(idem.Delivered{Upto: 1}))
			k.equal(delivered(k), &idem.Delivered{Upto: 1, Extra: []uint64{3}})
			k.mustCommit(deliver(idem.Delivered{Extra: []uint64{2}}))
			k.equal(delivered(k), &idem.Delivered{Upto: 3})
			k.mustCommit(deliver(idem.Delivered{Upto: 2}))
			k.equal(delivered(k), &idem.Delivered{Upto: 3})
		},
		"the first alias stays": func(t *testing.T, k kit) {
			alias := ref(idem.KindAlias, 1)
			for n := 1; n <= 2; n++ {
				k.mustCommit(idem.Change{Marks: []idem.Mark{{Ref: alias, Alias: &idem.Alias{Operation: num(n)}}}})
			}
			k.equal(k.mustLoad(alias).Row(alias), idem.Row{Ref: alias, Version: 1, Alias: &idem.Alias{Operation: num(1)}})
		},
		"twins are a union, and whoever saw the slot before conflicts": func(t *testing.T, k kit) {
			slot := ref(idem.KindSlot, 1)
			join := func(n int) idem.Change { return idem.Change{Marks: []idem.Mark{{Ref: slot, Twin: num(n)}}} }
			k.mustCommit(join(1))
			k.mustCommit(puts(idem.Row{Ref: slot, Slot: &idem.Slot{N: 7, Open: []idem.ID{num(1)}}}))
			k.mustCommit(join(2))
			k.mustCommit(join(1))
			want := idem.Row{Ref: slot, Version: 3, Slot: &idem.Slot{N: 7, Open: []idem.ID{num(1), num(2)}}}
			k.equal(k.mustLoad(slot).Row(slot), want)
			k.mustConflict(idem.Change{Needs: []idem.Need{{Ref: slot, Version: 2}}}, "version")
		},
		"marks come after puts": func(t *testing.T, k kit) {
			c := deliver(idem.Delivered{Extra: []uint64{4}})
			c.Puts = []idem.Row{{Ref: ref(idem.KindDelivery, 1), Delivered: &idem.Delivered{Upto: 2}}}
			k.mustCommit(c)
			k.equal(delivered(k), &idem.Delivered{Upto: 2, Extra: []uint64{4}})
			alias := ref(idem.KindAlias, 1)
			c = puts(idem.Row{Ref: alias, Alias: &idem.Alias{Operation: num(1)}})
			c.Marks = []idem.Mark{{Ref: alias, Alias: &idem.Alias{Operation: num(2)}}}
			k.mustCommit(c)
			k.equal(k.mustLoad(alias).Row(alias).Alias, &idem.Alias{Operation: num(1)})
		},
	})
}
