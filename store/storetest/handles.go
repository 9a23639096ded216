package storetest

import (
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// handles returns n handles on the ledger, or the only one that there is.
func (k kit) handles(n int) []idem.Store {
	k.Helper()
	stores := []idem.Store{k.store}
	for k.suite.have.Several && len(stores) < n {
		stores = append(stores, k.sub.Another(k.T))
	}
	return stores
}

// on is the kit with another handle.
func (k kit) on(st idem.Store) kit {
	k.store = st
	return k
}

// behind is how far a handle's clock may be behind the ledger's.
const behind = 100 * time.Millisecond

func (s suite) severals(t *testing.T) {
	if !s.have.Several {
		t.Skip("a ledger of this store has one handle (Features.Several)")
	}
	s.each(t, map[string]func(*testing.T, kit){
		"what one commits the other sees": func(t *testing.T, k kit) {
			a, b := k, k.on(k.sub.Another(t))
			for v := idem.Version(0); v < 20; v++ {
				c := puts(put(num(1), record("a")))
				c.Needs = []idem.Need{need(op(num(1)), v)}
				a.mustCommit(c)
				b.mustConflict(c, "version")
				b.equal(b.mustRecord(num(1)).Version, v+1)
				a, b = b, a
			}
		},
		"a watch is woken by the other": func(t *testing.T, k kit) {
			other := k.sub.Another(t)
			k.mustCommit(puts(put(num(1), record("a"))))
			for v := idem.Version(1); v < 6; v++ {
				ch := make(chan error, 1)
				go func() { ch <- other.Watch(k.ctx(), num(1), v) }()
				time.Sleep(20 * time.Millisecond)
				k.mustCommit(puts(put(num(1), record("a"))))
				if err := within(t, soon, "watch", ch); err != nil {
					t.Fatal(err)
				}
			}
		},
		"one clock":          clocksAgree,
		"one clock, at once": clocksRace,
		"one judge of leases": func(t *testing.T, k kit) {
			other := k.on(k.sub.Another(t))
			other.mustClock() // it has a reading of its own
			end := k.claim(leaseTime)
			other.mustCommit(leaseNeed(1, idem.LeaseHeld, mine))
			other.mustConflict(leaseNeed(1, idem.LeaseOver, idem.Token{}), "lease")
			k.mustCommit(extend(mine, end.Add(leaseTime)))
			s.pass(k.sub, leaseTime)
			other.mustConflict(leaseNeed(1, idem.LeaseOver, idem.Token{}), "lease")
			k.equal(other.mustRecord(num(1)).Lease.End, end.Add(leaseTime))
			s.pass(k.sub, leaseTime)
			other.mustCommit(leaseNeed(1, idem.LeaseOver, idem.Token{}))
			k.mustConflict(leaseNeed(1, idem.LeaseHeld, mine), "lease")
		},
		"one is closed": func(t *testing.T, k kit) {
			other := k.on(k.sub.Another(t))
			if err := other.store.Close(); err != nil {
				t.Fatal(err)
			}
			k.mustCommit(puts(put(num(1), record("a"))))
			third := k.on(k.sub.Another(t))
			third.equal(third.mustRecord(num(1)).Version, idem.Version(1))
		},
	})
}

// clocksAgree: no handle is ahead of the ledger, and none is far behind it.
func clocksAgree(t *testing.T, k kit) {
	stores := append(k.handles(3), k.store)
	for n := range 40 {
		a, b := k.on(stores[n%3]), k.on(stores[n%3+1])
		told := b.mustClock()
		stamp := a.mustCommit(deliver(idem.Delivered{Upto: uint64(n)})).Time
		again := b.mustClock()
		if told > stamp {
			t.Fatalf("round %d: a commit after a reading is %v before it", n, told.Sub(stamp))
		}
		if stamp.Sub(again) > behind {
			t.Fatalf("round %d: a reading after a commit is %v before it", n, stamp.Sub(again))
		}
	}
}

// clocksRace: each handle's readings never go back, whoever reads.
func clocksRace(t *testing.T, k kit) {
	stores := k.handles(2)
	end := time.Now().Add(300 * time.Millisecond)
	together(6, func(n int) {
		k := k.on(stores[n%2])
		var last idem.Instant
		for i := 0; time.Now().Before(end); i++ {
			var now idem.Instant
			var err error
			switch i % 4 {
			case 0:
				var s idem.Stamp
				s, err = k.store.Commit(k.ctx(), deliver(idem.Delivered{Extra: []uint64{uint64(i)}}))
				now = s.Time
			case 1:
				var s idem.Snapshot
				s, err = k.store.Load(k.ctx(), ref(idem.KindDelivery, 1))
				now = s.Now
			default:
				now, err = k.store.Clock(k.ctx())
			}
			if err != nil || now < last {
				t.Errorf("goroutine %d: %d after %d, error %v", n, now, last, err)
				return
			}
			last = now
		}
	})
}
