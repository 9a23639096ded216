package idem

import (
	"context"
	"errors"
	"fmt"
)

// Store is the durable ledger. Implementations are safe for concurrent use by
// any number of goroutines and pass the suite in store/storetest.
//
// A commit is all or nothing and durable when Commit returns nil. Every rule of
// the protocol is expressed as Needs, which the store checks against its
// current rows and its own clock inside the commit.
type Store interface {
	// Load reads rows from one consistent snapshot. Rows that do not exist are
	// left out. The rows are the caller's to change.
	Load(ctx context.Context, refs ...Ref) (Snapshot, error)

	// Commit applies a Change whole or not at all. It returns a *Conflict when a
	// need does not hold (nothing was changed; load again and decide anew),
	// ErrCommitUnknown when it cannot be said whether it was applied (load and
	// compare claim tokens; never assume it was not), and any other error when
	// nothing was changed. The same Change with the same ID may be committed
	// again after ErrCommitUnknown: its needs decide.
	Commit(ctx context.Context, c Change) (Stamp, error)

	// List pages through operations in the order that the query names.
	List(ctx context.Context, q Query) (Page, error)

	// Watch returns nil when the operation's version is past after, at once if
	// it is already, and ctx.Err() when ctx ends first. A spurious return is
	// allowed: the caller loads again.
	Watch(ctx context.Context, id ID, after Version) error

	// Clock reads the ledger's clock, which never goes back, also not across
	// restarts. What it returns may lag behind by the store's latency, so that a
	// store can tell it between two round trips. It is never ahead, and never
	// before a moment that this store has returned already, from any method. The
	// guard asks it before each claim, dispatch and outcome, and its margins (a
	// fifth of a lease; settle) have to be longer than the lag.
	Clock(ctx context.Context) (Instant, error)

	// Close releases the ledger. Later calls return ErrClosed.
	Close() error
}

// Snapshot is what Load returns.
type Snapshot struct {
	Now  Instant `cbor:"1,keyasint"` // the ledger's clock at the moment of the snapshot
	Rows []Row   `cbor:"2,keyasint,omitempty"`
}

// Row returns a row; a missing one is empty.
func (s Snapshot) Row(ref Ref) Row {
	for i := range s.Rows {
		if s.Rows[i].Ref == ref {
			return s.Rows[i]
		}
	}
	return Row{}
}

// Operation returns a record; nil: there is none.
func (s Snapshot) Operation(id ID) *Record { return s.Row(Ref{KindOperation, id}).Operation }

// Slot returns a slot and its version; a missing one is empty at version 0.
func (s Snapshot) Slot(id ID) (Slot, Version) {
	r := s.Row(Ref{KindSlot, id})
	if r.Slot == nil {
		return Slot{}, 0
	}
	return *r.Slot, r.Version
}

// Change is one atomic change of the ledger, as plain data.
type Change struct {
	ID    ChangeID `cbor:"1,keyasint"`
	Needs []Need   `cbor:"2,keyasint,omitempty"` // all must hold
	Puts  []Row    `cbor:"3,keyasint,omitempty"` // each gets the next version of its row
	Drops []Ref    `cbor:"4,keyasint,omitempty"` // rows to delete; missing ones are no error
	Marks []Mark   `cbor:"5,keyasint,omitempty"` // merged by maximum, after the puts
}

// ChangeID tells one Change from another.
type ChangeID [16]byte

// Need is a condition on one row.
type Need struct {
	Ref     Ref       `cbor:"1,keyasint"`
	Version Version   `cbor:"2,keyasint,omitempty"` // exactly this; 0: the row must not exist
	Lease   LeaseNeed `cbor:"3,keyasint,omitempty"` // of an operation's attempt, judged by the store's clock
	Token   Token     `cbor:"4,keyasint,omitempty"` // with LeaseHeld: by this claim
}

// LeaseNeed is what a Need asks of a lease.
type LeaseNeed uint8

const (
	LeaseAny  LeaseNeed = iota
	LeaseHeld           // the claim with Token holds it and its end is not reached
	LeaseOver           // its end is reached, or nobody holds it
)

// Mark is a monotone note: it never conflicts and merging it twice changes
// nothing. Exactly one of the pointers, LeaseEnd or Twin is set.
type Mark struct {
	Ref       Ref        `cbor:"1,keyasint"`
	Delivered *Delivered `cbor:"2,keyasint,omitempty"` // KindDelivery: union
	Alias     *Alias     `cbor:"3,keyasint,omitempty"` // KindAlias: put if absent
	LeaseEnd  Instant    `cbor:"4,keyasint,omitempty"` // KindOperation: maximum; a store may keep it in memory while its holder lives
	Token     Token      `cbor:"5,keyasint,omitempty"` // with LeaseEnd: only for this claim
	Twin      ID         `cbor:"6,keyasint,omitempty"` // KindSlot: joins Slot.Open
}

// Stamp says when a Change was applied, on the ledger's clock.
type Stamp struct {
	Time Instant `cbor:"1,keyasint"`
}

// Order is the order and the filter of a List.
type Order uint8

const (
	// ByID lists every operation, in the order of its ID.
	ByID Order = iota
	// ByDue lists operations of Query.Tenant and Query.Server whose Due is not
	// 0 and not after Query.Until, earliest first. An attempt's lease counts with
	// the marks that extended it.
	ByDue
	// ByState lists operations in Query.State, stored state only.
	ByState
	// ByTask lists operations of Query.Tenant and Query.Task in the order of
	// their creation.
	ByTask
)

// Query selects operations for List.
type Query struct {
	Order  Order   `cbor:"1,keyasint,omitempty"`
	Tenant string  `cbor:"2,keyasint,omitempty"` // ByDue, ByTask; with the others: a filter, empty for all
	Server string  `cbor:"3,keyasint,omitempty"` // ByDue
	State  State   `cbor:"4,keyasint,omitempty"` // ByState
	Task   string  `cbor:"5,keyasint,omitempty"` // ByTask
	Until  Instant `cbor:"6,keyasint,omitempty"` // ByDue
	After  []byte  `cbor:"7,keyasint,omitempty"` // Page.Next of the page before
	Limit  int     `cbor:"8,keyasint,omitempty"` // most records of a page; 0: 100
}

// Page is a part of a listing.
type Page struct {
	Records []*Record `cbor:"1,keyasint,omitempty"` // Version set
	Next    []byte    `cbor:"2,keyasint,omitempty"` // nil: this was the last page
	Now     Instant   `cbor:"3,keyasint,omitempty"`
}

var (
	// ErrCommitUnknown: the change was applied or not, the store cannot tell.
	ErrCommitUnknown = errors.New("idem: commit outcome unknown")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("idem: store closed")
)

// Conflict says which need of a Change did not hold. Nothing was changed.
type Conflict struct {
	Ref  Ref
	Have Version // the row's version; 0: absent
	Want Version
	Why  string // "version" or "lease"
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("idem: conflict on row %d/%s: %s (have version %d, want %d)", c.Ref.Kind, c.Ref.ID, c.Why, c.Have, c.Want)
}
