// Package core holds the rules that every store of this module applies in the
// same way, whatever it keeps its rows in: how the needs of a Change are judged
// and its writes planned, the ledger's clock, lease ends that live in memory,
// the keys of the indexes, listing, and waiting for a change.
//
// It keeps no rows. A store gives it a transaction ([Tx]) to plan on and carries
// the plan out itself, so that nothing is written before everything that can go
// wrong has been tried.
package core
