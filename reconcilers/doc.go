// Package reconcilers holds ways to ask an outside system what became of an
// operation: implementations of [idem.Reconciler].
//
// All keep one rule: an answer that cannot be read is an error. An empty
// [idem.Finding] means that the outside system was asked, understood, and has
// nothing; the guard may take it for proof of absence, and then sends again.
package reconcilers
