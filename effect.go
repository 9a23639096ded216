package idem

import (
	"context"
	"time"
)

// Effect performs one attempt. It is called at most once per claim, on a
// context that the asker's cancellation does not reach, and returns when the
// attempt has ended or can be said to have (Outcome.End). A panic is an
// ambiguous outcome.
type Effect func(ctx context.Context, d Dispatch) Outcome

// Dispatch is what an attempt may send.
type Dispatch struct {
	Key     string // the key to send outside: at most 64 of [a-z0-9-], the same for every attempt
	Attempt uint32 // its number, from 1
	Record  *Record
}

// AttemptID is the key and the attempt's number, for correlation only.
func (d Dispatch) AttemptID() string { return attemptID(d.Key, d.Attempt) }

// Outcome is how an attempt ended.
type Outcome struct {
	Class           Class
	Result          []byte // raw bytes; nil if there are none
	Kind            ResultKind
	ExternalID      string
	ExternalRequest string
	Text            string        // error text
	RetryAfter      time.Duration // what the upstream asked for; 0: nothing
	ParkedOn        []byte        // ClassInterim: digest of the state that was handed out

	// Ended says how it is known that the attempt can no longer act; empty: it
	// is not known. A definite class needs none.
	Ended EndBy
	// Lost: the process that held the effect's state has ended with it.
	Lost bool
	// Sent: when bytes could last have left, if the transport knows.
	Sent time.Time
}
