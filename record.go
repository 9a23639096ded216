package idem

import "encoding/base32"

// ID is the fixed-size key of a durable row: the first 160 bits of a SHA-256
// over length-prefixed parts.
type ID [20]byte

var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String is the ID as 32 characters of [a-z2-7]. For an operation this is the
// key that is sent outside and what commands take.
func (id ID) String() string { return idText.EncodeToString(id[:]) }

// ParseID is the inverse of String.
func ParseID(s string) (ID, bool) {
	var id ID
	b, err := idText.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, id.String() == s
}

// Version counts the commits of a row, from 1. Zero: there is no such row.
type Version uint64

// Scope is where a key means something.
type Scope struct {
	Tenant    string `cbor:"1,keyasint,omitempty"`
	Tool      string `cbor:"2,keyasint,omitempty"` // server/tool
	Operation string `cbor:"3,keyasint,omitempty"` // "call" unless the policy names one
}

// Record is everything the ledger knows about one generation of an operation.
// It is plain data: its encoding is the ledger's format, so field numbers are
// never reused. Fields are changed by [Next] only.
type Record struct {
	Scope       Scope     `cbor:"1,keyasint"`
	Source      KeySource `cbor:"2,keyasint"`
	Key         string    `cbor:"3,keyasint,omitempty"`  // as text; for an occurrence its number
	Generation  uint32    `cbor:"4,keyasint,omitempty"`  // from 1
	Hash        Hash      `cbor:"5,keyasint"`            // of the request
	Args        []byte    `cbor:"6,keyasint,omitempty"`  // raw argument bytes as asked
	State       State     `cbor:"7,keyasint"`            // never RECONCILING
	Task        string    `cbor:"8,keyasint,omitempty"`  // empty: no task can be known
	Run         string    `cbor:"9,keyasint,omitempty"`  // in which it was first asked for
	Step        string    `cbor:"10,keyasint,omitempty"` // named by the host
	Occurrence  uint64    `cbor:"11,keyasint,omitempty"` // from 1; 0: not an occurrence
	Slot        ID        `cbor:"12,keyasint,omitempty"` // of its twins; zero: has none
	Aliases     []ID      `cbor:"13,keyasint,omitempty"` // alias rows that point here
	Incarnation string    `cbor:"14,keyasint,omitempty"` // of the upstream process, with state: process

	Attempts []Attempt `cbor:"20,keyasint,omitempty"` // oldest first; unresolved ones are never dropped
	Last     uint32    `cbor:"21,keyasint,omitempty"` // number of the latest attempt, from 1
	Lease    Lease     `cbor:"22,keyasint,omitempty"` // of the latest attempt
	Round    Round     `cbor:"23,keyasint,omitempty"` // what the retry schedule counts
	RetryAt  Instant   `cbor:"24,keyasint,omitempty"` // FAILED_RETRYABLE: not before

	ExternalID      string     `cbor:"30,keyasint,omitempty"`
	CommittedBy     uint32     `cbor:"31,keyasint,omitempty"` // attempt; 0: found by a query, or by a person
	Reconciled      bool       `cbor:"32,keyasint,omitempty"` // the outcome came from a query
	Result          []byte     `cbor:"33,keyasint,omitempty"` // raw bytes
	ResultKind      ResultKind `cbor:"34,keyasint,omitempty"`
	ResultSize      int64      `cbor:"35,keyasint,omitempty"` // bytes, also where Result was too large to keep
	ResultDigest    []byte     `cbor:"36,keyasint,omitempty"` // SHA-256 of the whole result
	Absence         Absence    `cbor:"37,keyasint,omitempty"`
	Class           Class      `cbor:"38,keyasint,omitempty"` // of the latest end
	Reason          Reason     `cbor:"39,keyasint,omitempty"`
	Text            string     `cbor:"40,keyasint,omitempty"` // error text, cut to TextLimit
	Duplicates      uint32     `cbor:"41,keyasint,omitempty"` // further effects that are known
	ParkedOn        []byte     `cbor:"42,keyasint,omitempty"` // digest of the state an interim answer handed out
	ReplacedArgs    []string   `cbor:"43,keyasint,omitempty"` // argument paths the model filled and we replaced
	Reconcile       Reconcile  `cbor:"44,keyasint,omitempty"`
	Granted         bool       `cbor:"45,keyasint,omitempty"` // one more attempt, by an operator; used once
	Decisions       []Decision `cbor:"46,keyasint,omitempty"` // by operators, oldest first
	Op              ID         `cbor:"48,keyasint"`           // of its row: the key sent outside
	ExternalRequest string     `cbor:"47,keyasint,omitempty"` // id the outside gave the request

	CreatedAt    Instant `cbor:"60,keyasint,omitempty"`
	StartedAt    Instant `cbor:"61,keyasint,omitempty"` // first dispatch
	CommittedAt  Instant `cbor:"62,keyasint,omitempty"`
	UnknownSince Instant `cbor:"63,keyasint,omitempty"`
	SettledAt    Instant `cbor:"64,keyasint,omitempty"`
	UpdatedAt    Instant `cbor:"65,keyasint,omitempty"`
	ExpiresAt    Instant `cbor:"66,keyasint,omitempty"` // final states only
	Expired      bool    `cbor:"67,keyasint,omitempty"` // a tombstone: identity and state are left

	// Version is set by the store when it loads the record; it is not part of
	// the encoding.
	Version Version `cbor:"-"`
}

// ResultKind says what the stored result is.
type ResultKind uint8

const (
	ResultNone  ResultKind = iota
	ResultValue            // a tool's result
	ResultError            // a protocol error object
)

// TextLimit is the most bytes of an error text that a record keeps.
const TextLimit = 2048

// Attempt is one dispatch of an operation.
type Attempt struct {
	N          uint32  `cbor:"1,keyasint"`
	Owner      Owner   `cbor:"2,keyasint,omitempty"`
	Group      Group   `cbor:"3,keyasint,omitempty"` // the upstream's process group; zero: none
	Start      Instant `cbor:"4,keyasint,omitempty"`
	Sent       Instant `cbor:"5,keyasint,omitempty"`  // last moment bytes could leave
	End        Instant `cbor:"6,keyasint,omitempty"`  // proven end; 0: it may still act
	EndBy      EndBy   `cbor:"7,keyasint,omitempty"`  // how the end is known
	Class      Class   `cbor:"8,keyasint,omitempty"`  // empty: no report yet
	Text       string  `cbor:"9,keyasint,omitempty"`  // error text
	MayApplied bool    `cbor:"10,keyasint,omitempty"` // may have applied
	Closed     Proof   `cbor:"11,keyasint,omitempty"` // by which proof it is out of the question
	ExternalID string  `cbor:"12,keyasint,omitempty"`
	// Atomic: its effect commits with its outcome, as the next version of the
	// record. It has not applied as long as the record does not say so, and cannot
	// any more once the record has moved on: that fences it.
	Atomic bool `cbor:"13,keyasint,omitempty"`
}

// EndBy says how an attempt's end is known.
type EndBy string

const (
	EndByAnswer  EndBy = "answer"   // its complete answer
	EndByGroup   EndBy = "group"    // the end of the upstream's process group
	EndByNotSent EndBy = "not_sent" // it never left
	EndByBytes   EndBy = "bytes"    // the last moment bytes could have left, its owner finished or dead
	EndByFence   EndBy = "fence"    // an atomic one: the commit that moved the record on
)

// Proof says why an attempt can no longer have an unknown effect.
type Proof string

const (
	ProofNotSent  Proof = "not_sent"
	ProofAnswer   Proof = "answer"   // a definite failure
	ProofQuery    Proof = "query"    // a query that began settle after its end
	ProofOperator Proof = "operator" // a person's word
	ProofFence    Proof = "fence"    // an atomic one: the record moved on without it
)

// Token makes a claim recognisable as one's own after an ambiguous commit.
type Token [16]byte

// Lease is the right to act on an operation until an end.
type Lease struct {
	Fence uint64  `cbor:"1,keyasint,omitempty"` // only grows
	Token Token   `cbor:"2,keyasint,omitempty"`
	Owner Owner   `cbor:"3,keyasint,omitempty"`
	End   Instant `cbor:"4,keyasint,omitempty"` // 0: not held
}

// Round is what a retry schedule counts; a grant or a fresh attempt after
// failure_ttl begins another.
type Round struct {
	Attempts uint32  `cbor:"1,keyasint,omitempty"`
	Since    Instant `cbor:"2,keyasint,omitempty"`
}

// Reconcile is the state of asking the outside system.
type Reconcile struct {
	Count    uint32   `cbor:"1,keyasint,omitempty"`
	Next     Instant  `cbor:"2,keyasint,omitempty"` // 0: not asked (any more)
	Lease    Lease    `cbor:"3,keyasint,omitempty"`
	Text     string   `cbor:"4,keyasint,omitempty"` // what the last query said, if it failed
	Baseline []string `cbor:"5,keyasint,omitempty"` // ids that were there before the claim
	HasBase  bool     `cbor:"6,keyasint,omitempty"`
	BaseAt   Instant  `cbor:"7,keyasint,omitempty"` // before the baseline's query left
	View     ID       `cbor:"8,keyasint,omitempty"` // the slot of all whose baselines look at the same
}

// Owner names a process for good: pids are used again, this quadruple is not.
type Owner struct {
	Machine string `cbor:"1,keyasint,omitempty"`
	Boot    string `cbor:"2,keyasint,omitempty"`
	PID     int    `cbor:"3,keyasint,omitempty"`
	Start   uint64 `cbor:"4,keyasint,omitempty"` // clock ticks after boot
}

// Group names a process group that leads a session of its own.
type Group struct {
	PGID  int    `cbor:"1,keyasint,omitempty"`
	Start uint64 `cbor:"2,keyasint,omitempty"` // of its leader, clock ticks after boot
}

// Decision is an operator's word about an operation.
type Decision struct {
	Command string  `cbor:"1,keyasint,omitempty"` // its id
	Verb    string  `cbor:"2,keyasint,omitempty"` // committed, not-applied, compensated, grant-retry
	Reason  string  `cbor:"3,keyasint,omitempty"`
	At      Instant `cbor:"4,keyasint,omitempty"`
	Saw     Version `cbor:"5,keyasint,omitempty"`
}

// Server is the upstream's name: the tool's name up to the first slash.
func (r *Record) Server() string { return ServerOf(r.Scope.Tool) }

// ServerOf is the part of a tool's full name before the first slash.
func ServerOf(tool string) string {
	for i := range len(tool) {
		if tool[i] == '/' {
			return tool[:i]
		}
	}
	return tool
}

// Due is when code has to look at the record again by itself; 0: never. The
// store keeps an index of it.
func (r *Record) Due() Instant {
	switch {
	case r.Expired:
		return 0
	case r.State == StateStarted:
		return r.Lease.End
	case r.Reconcile.Next != 0:
		return max(r.Reconcile.Next, r.Reconcile.Lease.End)
	case r.State.Final():
		return r.ExpiresAt
	}
	return 0
}

// Shown is the state as commands show it: RECONCILING where a reconciler
// holds its lease at now.
func (r *Record) Shown(now Instant) State {
	if r.State == StateUnknown && r.Reconcile.Lease.End > now {
		return StateReconciling
	}
	return r.State
}

// MayHaveApplied reports whether some attempt may have had its effect and none
// is known to.
func (r *Record) MayHaveApplied() bool {
	for i := range r.Attempts {
		if r.Attempts[i].MayApplied {
			return true
		}
	}
	return false
}

// attempt finds an attempt by number; nil: it was resolved and dropped.
func (r *Record) attempt(n uint32) *Attempt {
	for i := range r.Attempts {
		if r.Attempts[i].N == n {
			return &r.Attempts[i]
		}
	}
	return nil
}

// Clone returns a copy that shares no slice the machine changes in place.
func (r *Record) Clone() *Record {
	c := *r
	c.Attempts = append([]Attempt(nil), r.Attempts...)
	c.Aliases = append([]ID(nil), r.Aliases...)
	c.Decisions = append([]Decision(nil), r.Decisions...)
	return &c
}
