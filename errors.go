package idem

import (
	"errors"
	"fmt"
)

// Code is the machine-readable kind of a non-result. The same codes are used on
// every front.
type Code string

const (
	CodeMismatch          Code = "IDEMPOTENCY_PARAMETER_MISMATCH"
	CodeInProgress        Code = "OPERATION_IN_PROGRESS"
	CodeUnknown           Code = "OUTCOME_UNKNOWN"
	CodeNeedsReview       Code = "NEEDS_REVIEW"
	CodeRetryScheduled    Code = "RETRY_SCHEDULED"
	CodeApprovalPending   Code = "APPROVAL_PENDING"
	CodeFailed            Code = "OPERATION_FAILED"
	CodeExpired           Code = "OPERATION_EXPIRED"
	CodeCompensated       Code = "OPERATION_COMPENSATED"
	CodeRepeatRefused     Code = "REPEAT_REFUSED"
	CodeInvalidArguments  Code = "INVALID_ARGUMENTS"
	CodeNotRecorded       Code = "EXECUTED_NOT_RECORDED"
	CodeLedgerUnavailable Code = "LEDGER_UNAVAILABLE"
)

// Error is how the guard refuses: one code, one short plain text that never
// invites a retry, and the facts.
type Error struct {
	Code    Code
	Text    string
	Record  *Record // the operation as it stands; nil where there is none
	Op      ID      // zero where there is none
	RetryAt Instant // CodeRetryScheduled
	Err     error   // the cause, for logs; nil if there is none
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Text, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Text)
}

func (e *Error) Unwrap() error { return e.Err }

// Is matches the sentinels below by code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Text == ""
}

// Sentinels for errors.Is.
var (
	ErrMismatch          = &Error{Code: CodeMismatch}
	ErrInProgress        = &Error{Code: CodeInProgress}
	ErrOutcomeUnknown    = &Error{Code: CodeUnknown}
	ErrNeedsReview       = &Error{Code: CodeNeedsReview}
	ErrRetryScheduled    = &Error{Code: CodeRetryScheduled}
	ErrApprovalPending   = &Error{Code: CodeApprovalPending}
	ErrFailed            = &Error{Code: CodeFailed}
	ErrExpired           = &Error{Code: CodeExpired}
	ErrCompensated       = &Error{Code: CodeCompensated}
	ErrRepeatRefused     = &Error{Code: CodeRepeatRefused}
	ErrInvalidArguments  = &Error{Code: CodeInvalidArguments}
	ErrLedgerUnavailable = &Error{Code: CodeLedgerUnavailable}
)

// CodeOf is the code of an error of this package; empty for any other.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
