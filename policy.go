package idem

import "time"

// Policy tells the guard and the recoverer what holds for a tool.
type Policy interface {
	// Rules returns the rules of a tool by its full name (server/tool). ok is
	// false for a tool that this process is not configured for: its operations
	// are left alone.
	Rules(tool string) (r Rules, ok bool)
}

// Repeat is what an ask without key or step means once an equal one was
// answered.
type Repeat string

const (
	RepeatOccurrence Repeat = "occurrence" // in hand: a second, intended one
	RepeatEachCall   Repeat = "each_call"  // every ask is its own, also in flight
	RepeatReplay     Repeat = "replay"     // the first outcome, always
	RepeatRefuse     Repeat = "refuse"     // refused once it was delivered
)

// Rules are a tool's rules, every default filled in.
type Rules struct {
	Operation string        // of the scope; "call"
	Repeat    Repeat        // "occurrence"
	Timeout   time.Duration // frees the caller and makes the outcome unknown, or fences an atomic attempt; 0: none
	Wait      time.Duration // bounds the waits of asks, the starter's own attempt excepted
	Lease     time.Duration // of a claim

	// Key reads the business key off the raw arguments; nil: the tool has none.
	// An error is INVALID_ARGUMENTS.
	Key    func(args []byte) (string, error)
	Bind   []Path // with Key: what must stay equal; empty: everything but Ignore
	Ignore []Path // left out of the request hash
	Fills  Path   // the argument that we fill with the key; left out of the hash

	Retry Retry
	// Resend: an ambiguous outcome may be sent again under the same key
	// (effect: idempotent).
	Resend bool
	// Process: what the tool makes lives in the upstream's process and ends with
	// it (state: process).
	Process bool
	// Query is how the tool's unknown outcomes are settled; nil: by a person.
	Query *QueryRules

	FailureTTL          time.Duration // a proven failure is replayed for so long
	Retention           time.Duration // of a final record
	OccurrenceRetention time.Duration // of a delivered occurrence
	ResultLimit         int64         // most bytes of a result that are kept; 0: no limit
}

// Retry is a retry schedule.
type Retry struct {
	MaxAttempts int           // the first one included
	MaxElapsed  time.Duration // from the first attempt of the round; 0: no limit
	// Delay returns how long to wait before attempt n+1, after n attempts of
	// the round; floor is what the upstream asked for (Retry-After) or 0.
	Delay func(n int, floor time.Duration) time.Duration
}

// QueryRules say when and how often a reconciler asks.
type QueryRules struct {
	Reconciler Reconciler
	Settle     time.Duration // from an attempt's proven end until "not found" is proof
	Every      time.Duration // between two queries
	GiveUp     time.Duration // from unknown until a person is asked
	Baseline   bool          // also ask before the claim; found means new ids
}
