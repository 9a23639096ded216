package idem

import (
	"context"
	"sync"
	"time"
)

// Ask is one request that reaches the guard. Empty fields are unknown; nothing
// in it may come from the model but Args.
type Ask struct {
	Tenant  string   // from configuration or the authenticated principal
	Tool    string   // server/tool
	Args    []byte   // raw JSON object as asked; nil: no arguments
	Task    string   // empty: no task can be known
	Run     string   // of the agent; empty: the run without a name
	Step    string   // named by the host; means nothing without Task
	HostKey string   // _meta["mcp-idem/key"]
	Generic string   // a client's idempotency key; beside a step an alias only
	Aliases []string // call ids of the client

	// Conn is the connection the ask came on; nil: none, then an outcome counts
	// as delivered at once.
	Conn *Conn
}

// Path names a member of the arguments by the names that lead to it.
type Path []string

// Effect is a guarded side effect.
type Effect struct {
	// Prepare readies what the attempt will run on and says where that is. It is
	// called before the claim and must not have the effect. nil: nothing to
	// prepare. An error means that nothing was sent.
	Prepare func(ctx context.Context) (Site, error)
	// Run performs one attempt. It is called at most once per claim, on a
	// context that the asker's cancellation does not reach, and returns when the
	// attempt has ended or can be said to have. A panic is an ambiguous outcome.
	Run func(ctx context.Context, d Dispatch) Outcome

	// Atomic, where the outside system is the ledger's own database, takes Run's
	// place: it makes the effect and records its outcome in one transaction of
	// that database, so that both appear together or not at all. No outcome is
	// unknown, and Rules.Query is not asked. Stores offer helpers that make one of
	// a tool's function.
	//
	// It begins a transaction, calls the tool's function with it, hands what that
	// returned to decide, applies the Change in the same transaction and commits.
	// nil says that it committed. Every error says that nothing did, a *Conflict
	// that a need of the Change did not hold; but for ErrCommitUnknown: it cannot
	// be told. After an error of decide it rolls back and returns that one.
	//
	// It may be called more than once per claim, since the record may change
	// beside it: only one call's transaction commits. The context is out of reach
	// of the asker and ends when the attempt was given up. A panic must roll back.
	Atomic func(ctx context.Context, d Dispatch, decide Decide) error
}

// Site is where an attempt runs.
type Site struct {
	Group       Group  // the upstream's process group; zero: none
	Incarnation string // of the upstream's process; matters with Rules.Process
}

// Answer is what an ask gets: the tool's own result, or Err. Every answer is a
// value of its own; its Record and Result may be shared and are read only.
type Answer struct {
	Err         *Error     // nil: Result is the tool's own
	Record      *Record    // the operation as it stands; nil where there is none. Read only
	Op          ID         // zero where there is no operation
	Result      []byte     // raw bytes as the upstream sent them; nil when they were too large to keep
	Kind        ResultKind // of Result
	Replayed    bool       // another ask, or a query, brought the outcome
	NotRecorded bool       // the effect happened and could not be written down

	deliver func() (done func(error))
}

// Deliver marks the answer as handed over. Call it before the bytes leave, and
// done with what became of them. Until then it counts for asks on the same
// connection only; after done(nil) for all, once something was heard on the
// connection. done with an error takes the mark back, also after done(nil) as
// long as nothing was heard since: so for an answer that the client cancelled.
// Do not call Deliver for an ask that was cancelled before. An answer that comes
// later than the client's patience is not marked.
func (a *Answer) Deliver() (done func(error)) {
	if a.deliver == nil {
		return func(error) {}
	}
	return a.deliver()
}

// Conn is one connection of a client. It remembers which answers it was given,
// until they have surely arrived: until they were written whole and something
// is heard after, or at that very time.
type Conn struct {
	mu       sync.Mutex
	pending  []*handed
	answered map[ID]struct{} // aliases whose answer it has
	confirm  func([]mark)
}

// handed is an answer that leaves, or has left, on a connection.
type handed struct {
	mark    mark // n 0: none
	aliases []ID
	written bool // wholly
	heard   bool // something came from the client since
	heardAt time.Time
}

// mark is one delivered outcome.
type mark struct {
	row ID // of the Delivered
	n   uint64
}
