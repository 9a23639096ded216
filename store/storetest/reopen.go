package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

func (s suite) reopen(t *testing.T) {
	if !s.have.Durable {
		t.Skip("this store keeps nothing (Features.Durable)")
	}
	s.each(t, map[string]func(*testing.T, kit){
		"rows, indexes and clock": func(t *testing.T, k kit) {
			for _, r := range rows() {
				k.mustCommit(puts(r))
			}
			k.mustCommit(puts(put(num(2), due("b", 5))))
			before := k.mustClock()
			if s.have.Clock {
				k.sub.Advance(-24 * time.Hour)
			}
			k.store = k.sub.Reopen(t)
			for _, r := range rows() {
				if got := k.mustLoad(r.Ref).Row(r.Ref); got.Version != 1 {
					t.Errorf("row of kind %d is at version %d", r.Ref.Kind, got.Version)
				}
			}
			k.equal(k.keys(idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets", Until: 50}), []string{"b"})
			k.equal(k.keys(idem.Query{Order: idem.ByState, State: idem.StateStarted}), []string{"a"})
			if now := k.mustClock(); now < before {
				t.Fatalf("the clock went back %v", before.Sub(now))
			}
		},
		"a random history": func(t *testing.T, k kit) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			want := map[int]idem.Version{}
			for range 150 {
				n := rnd.IntN(25)
				if rnd.IntN(4) == 0 {
					k.mustCommit(idem.Change{Drops: []idem.Ref{op(num(n))}})
					delete(want, n)
				} else {
					k.mustCommit(puts(put(num(n), due(fmt.Sprint(n), idem.Instant(rnd.IntN(9)+1)))))
					want[n]++
				}
				if rnd.IntN(40) == 0 {
					k.store = k.sub.Reopen(t)
				}
			}
			k.store = k.sub.Reopen(t)
			got := map[int]idem.Version{}
			for n := range 25 {
				if r := k.mustLoad(op(num(n))).Operation(num(n)); r != nil {
					got[n] = r.Version
				}
			}
			k.equal(got, want)
			if n := len(k.keys(idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets", Until: 50, Limit: 7})); n != len(want) {
				t.Fatalf("the index has %d operations, want %d", n, len(want))
			}
		},
	})
}
