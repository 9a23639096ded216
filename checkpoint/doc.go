// Package checkpoint tells where a task stands: which of its steps are done, by
// which operations, what is unsettled, and what its agent noted.
//
// A crashed agent that resumes a task reads it first. Steps are not kept twice:
// they are the task's operations in the ledger, which commit with their outcomes.
// Beside them a task has one row of notes (artifacts, external references,
// remarks), in the same ledger.
//
// A task belongs to a tenant. Its notes stay for as long as the ledger: who
// resumes a task after months still finds them. They are bounded: see the limits.
package checkpoint
