package idem

import "context"

// Reconciler asks the outside system what became of an operation. It never
// dispatches the effect.
type Reconciler interface {
	// Query looks for the operation's effect. An empty Finding says that the
	// outside system answered and has nothing; an error says that it could not
	// be asked, which is never the same. The record is read only. Query is
	// called without a claim too (Record.Last is 0) where a baseline is wanted.
	// Safe for concurrent use.
	Query(ctx context.Context, q Lookup) (Finding, error)
}

// Lookup is what a reconciler is told.
type Lookup struct {
	Key         string  // the key sent outside
	BusinessKey string  // empty unless the operation has one
	Record      *Record // Args, Task, Step, ExternalID, …
}

// Finding is what the outside system answered.
type Finding struct {
	IDs    []string // what identifies each match: none absent, one found, more a duplicate
	Result []byte   // what a replay returns, raw; nil: keep what the record has
	// View names what was looked at: two operations that ask for the same may
	// find each other's effects. It matters with a baseline.
	View string
}
