// Package bench measures the Postgres store beside others on one server and in
// one run. It is a module of its own, so that nobody who uses the store gets
// what it is compared with.
//
// Every comparison alternates short slices of the two sides and reports the
// median of the slices' ratios, because a machine's speed changes from one
// second to the next. A call of each side takes the same 300 bytes of arguments
// and brings the same 400 bytes of result; its effect does nothing. All sides
// work on databases of one server, started by internal/pgtest with fsync on.
//
// Ours is a call through [idem.Guard] with a host key.
//
// The naive table is what one writes first: the key as primary key, the hash of
// the request, state, arguments, result, two times, and a partial index of
// unfinished rows. A call is one insert on conflict do nothing and one update,
// each a prepared statement in one round trip, and it promises less: there is
// no lease, no fence, no proof of absence. Its pool has 20 connections, the
// fastest of 4, 8, 16, 20, 32 and 64 for 64 callers.
//
// DBOS runs a workflow of one step whose workflow id is the key; the arguments
// are its input, the result is the step's and the workflow's output. It is
// configured as its documentation does it: a database URL, a name, and every
// default, of which the pool of 20 connections is the fastest for 64 callers
// too. Its log goes nowhere.
//
//	make bench-postgres
package bench
