package idem

import (
	"fmt"
	"time"
)

// Dispatch is what an attempt may send.
type Dispatch struct {
	Key     string // the key to send outside: at most 64 of [a-z0-9-], the same for every attempt
	Attempt uint32 // its number, from 1
	Site    Site   // as Prepare returned it
	Record  *Record

	// Free gives up the wait without ending the attempt: the outcome becomes
	// unknown and asks are freed. What Run returns counts whenever it comes. It
	// may be called more than once.
	Free func()
}

// AttemptID is the key and the attempt's number, for correlation only.
func (d Dispatch) AttemptID() string { return fmt.Sprintf("%s-%d", d.Key, d.Attempt) }

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
