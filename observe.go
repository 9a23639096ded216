package idem

// Observer is told what the protocol does, for logs and metrics. It must not
// block and is called from many goroutines at once.
type Observer interface {
	Observe(o Observation)
}

// Observation is one fact.
type Observation struct {
	What   string  // transition, refused, query_failed, unrecorded, late_report, recover_failed
	Op     ID      // zero where there is none
	From   State   // transition
	Record *Record // as it stands after; nil where there is none. Read only
	Code   Code    // refused
	Err    error
}
