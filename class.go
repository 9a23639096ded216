package idem

// Class is what an attempt's end says about its effect (DESIGN: classes of
// outcome). Package policy reads it off errors and results.
type Class string

const (
	// ClassSuccess: the effect is confirmed.
	ClassSuccess Class = "success"
	// ClassNotSent: observed that nothing of the request left.
	ClassNotSent Class = "not_sent"
	// ClassThrottled: refused before work, to be asked again later.
	ClassThrottled Class = "throttled"
	// ClassRejected: refused for good before any effect.
	ClassRejected Class = "rejected"
	// ClassExists: the outside already holds our own enforced key.
	ClassExists Class = "exists"
	// ClassAmbiguous: applied or not, the end does not say.
	ClassAmbiguous Class = "ambiguous"
	// ClassReported: the tool itself says that it failed.
	ClassReported Class = "reported"
	// ClassInterim: not an end. The tool wants input before it goes on.
	ClassInterim Class = "interim"
)

// Classes lists every class that a rule may name.
func Classes() []Class {
	return []Class{ClassSuccess, ClassNotSent, ClassThrottled, ClassRejected, ClassExists, ClassAmbiguous, ClassReported}
}

// definite reports whether the class proves that the attempt had no effect.
func (c Class) definite() bool {
	return c == ClassNotSent || c == ClassThrottled || c == ClassRejected
}

// Absence says how it is known that an operation was not applied.
type Absence string

const (
	// AbsenceNone: nothing is known about it.
	AbsenceNone Absence = ""
	// AbsenceClaimed: the tool says so, and nothing else does.
	AbsenceClaimed Absence = "claimed"
	// AbsenceProven: by observation, a query after settle, or a person.
	AbsenceProven Absence = "proven"
)

// Reason says why a record is in the state it is in, where the class does not.
type Reason string

const (
	ReasonRetryExhausted  Reason = "retry_exhausted"     // the schedule's attempts or time are used up
	ReasonLostWithProcess Reason = "lost_with_process"   // state: process, and the process ended
	ReasonDuplicate       Reason = "duplicate"           // more than one effect is known
	ReasonSeveralMatches  Reason = "several_matches"     // a query found more than one
	ReasonNothingToAsk    Reason = "nothing_to_ask"      // unknown, and no reconciler is declared
	ReasonGaveUp          Reason = "gave_up"             // reconciliation took longer than give_up
	ReasonTimeout         Reason = "timeout"             // the policy's timeout passed; the attempt may still end
	ReasonOwnerLost       Reason = "owner_lost"          // the attempt's owner died or its lease ran out
	ReasonOperator        Reason = "operator"            // a person decided
	ReasonLateSuccess     Reason = "late_success"        // a success came after a person's decision or a compensation
	ReasonInputRequired   Reason = "input_required"      // parked until the client brings input
	ReasonSuspected       Reason = "suspected_duplicate" // an earlier attempt succeeded while a later one runs
)
