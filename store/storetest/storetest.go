// Package storetest is the one suite that every idem.Store passes.
//
// A store's test gives it a factory and declares, not lets it find out, where it
// differs:
//
//	storetest.Run(t, newSubject, storetest.Features{Durable: true})
//
// Tests are split by operation family. Each makes a subject of its own; none
// depends on another. Random ones log their seed.
package storetest

import (
	"context"
	"iter"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// Subject is an empty store under test. The factory sees to closing it.
type Subject struct {
	Store idem.Store
	// Advance moves the clock that the store reads, with Features.Clock. A
	// negative d sets it back.
	Advance func(d time.Duration)
	// Reopen closes the store and opens what it kept, with Features.Durable.
	Reopen func(t testing.TB) idem.Store
	// Another opens one more handle on the same ledger, as another process has
	// it, with Features.Several.
	Another func(t testing.TB) idem.Store
}

// Factory makes an empty store.
type Factory func(t testing.TB) Subject

// Features declare what a store can do beyond what all of them do.
type Features struct {
	Durable bool // rows survive Reopen
	Clock   bool // Advance works, and time passes in no other way
	Moves   bool // the store is a Mover
	Several bool // Another works: a ledger has several handles
}

// Mover is a store whose rows can be moved to another one, as the commands export
// and import do.
type Mover interface {
	// Export calls yield with every row of one snapshot, versions and extended
	// lease ends included, in the order of Ref.Compare, and returns the ledger's
	// clock at the snapshot: no moment in a row that the ledger set is later. An
	// error of yield ends it and is returned.
	Export(ctx context.Context, yield func(idem.Row) error) (now idem.Instant, err error)

	// Import stores rows at their own versions, sets the ledger's clock forward
	// to now, and returns how many there were. It refuses a ledger that has rows,
	// and an order other than that of Ref.Compare. It is all or nothing: after
	// an error the ledger is as it was.
	Import(ctx context.Context, now idem.Instant, rows iter.Seq2[idem.Row, error]) (n int, err error)
}

// Run runs the suite.
func Run(t *testing.T, f Factory, have Features) {
	s := suite{f, have}
	for _, family := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Load", s.load},
		{"Commit", s.commit},
		{"Needs", s.needs},
		{"Repeat", s.repeat},
		{"Texts", s.texts},
		{"Lease", s.lease},
		{"Marks", s.marks},
		{"List", s.list},
		{"Watch", s.watch},
		{"Clock", s.clock},
		{"Concurrency", s.concurrency},
		{"Skew", s.skew},
		{"Random", s.random},
		{"Handles", s.severals},
		{"Reopen", s.reopen},
		{"Move", s.move},
		{"Close", s.close},
	} {
		t.Run(family.name, family.run)
	}
}

type suite struct {
	factory Factory
	have    Features
}

// leaseTime is short enough to wait for where the clock cannot be moved.
const leaseTime = 300 * time.Millisecond

// pass lets time pass on the store's clock.
func (s suite) pass(sub Subject, d time.Duration) {
	if s.have.Clock {
		sub.Advance(d)
		return
	}
	time.Sleep(d)
}

// each runs subtests, every one on a store of its own.
func (s suite) each(t *testing.T, tests map[string]func(*testing.T, kit)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sub := s.factory(t)
			test(t, kit{T: t, suite: s, sub: sub, store: sub.Store})
		})
	}
}
