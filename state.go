package idem

// State is where an operation stands. The package documentation draws the
// machine; only [Next] moves a record from one state to another.
type State string

const (
	// StatePlanned: the intent is durable and nothing has been dispatched. It
	// waits for approval, or for a person's input in a multi round trip call.
	StatePlanned State = "PLANNED"
	// StateStarted: a claim is held and the effect may be happening.
	StateStarted State = "STARTED"
	// StateCommitted: the effect is confirmed; every ask replays its outcome.
	StateCommitted State = "COMMITTED"
	// StateFailedRetryable: confirmed not applied, and worth another attempt.
	StateFailedRetryable State = "FAILED_RETRYABLE"
	// StateFailedFinal: not applied, proven or claimed by the tool, and
	// pointless to repeat.
	StateFailedFinal State = "FAILED_FINAL"
	// StateUnknown: applied or not, the ledger cannot tell.
	StateUnknown State = "UNKNOWN"
	// StateReconciling is UNKNOWN while a reconciler holds its lease. It is
	// shown and filtered by, never stored.
	StateReconciling State = "RECONCILING"
	// StateNeedsReview: code cannot settle it; a person decides.
	StateNeedsReview State = "NEEDS_REVIEW"
	// StateCompensating: the linked compensating operation is under way.
	StateCompensating State = "COMPENSATING"
	// StateCompensated: the effect was undone; it never runs forward again.
	StateCompensated State = "COMPENSATED"
)

// States lists every state in the order of a normal life.
func States() []State {
	return []State{StatePlanned, StateStarted, StateCommitted, StateFailedRetryable, StateFailedFinal,
		StateUnknown, StateReconciling, StateNeedsReview, StateCompensating, StateCompensated}
}

// Final reports whether the state carries a settled outcome. Only final states
// expire, and only a final occurrence can be delivered.
func (s State) Final() bool {
	return s == StateCommitted || s == StateFailedFinal || s == StateCompensated
}
