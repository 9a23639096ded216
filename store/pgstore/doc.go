// Package pgstore is the ledger that several hosts share: a schema in a
// PostgreSQL database, version 15 or newer, or in an engine that speaks its
// protocol and SQL.
//
// # Tables
//
//	operation   one row per operation: the record, and beside it the columns by
//	            which operations are found
//	entry       every other kind of row
//	clock       one row: what the ledger's clock never falls behind
//	ledger      one row: the ledger's id and the version of the schema
//	operations  a view for people
//
// They lie in the schema mcp_idem, or the one that the URL names, and every
// statement names it: search_path changes nothing. Rows are CBOR as package
// codec seals them, with a checksum. Each identity is a primary key.
//
// # A Change is one statement
//
// It judges the needs, writes and merges the marks in one round trip and one
// implicit transaction, at READ COMMITTED and without stored procedures; see
// statement.go for how races are excluded. A Change that finds the way free is
// sent at once and alone; those that come while others are under way share the
// next statement. In it a need that does not hold drops one Change and no other;
// where a row of the group is locked by somebody else, or a race of inserts was
// lost, its Changes are sent again one by one. So a single caller pays nothing
// for batching.
//
// # What is ridden out, and what is reported
//
//	What happens                            What Commit does
//	--------------------------------------  -------------------------------------------
//	deadlock, serialization failure, lost   tries again; not visible
//	race with an insert, lock timeout
//	no connection, too many connections,    tries again on another connection, for
//	a server that starts or shuts down,     Config.Patience; then ErrUnreachable or
//	a primary that became a standby         ErrReadOnly: nothing was changed
//	the connection is lost after the        sends the same Change again on another
//	statement left, also in the commit      connection: its needs let it be applied
//	                                        once, and a row that carries its id says
//	                                        that it was. If that cannot be found out
//	                                        in time, or the row was changed since:
//	                                        idem.ErrCommitUnknown
//	the disk is full                        ErrFull: nothing was changed
//
// Repeating a Change that may have been applied is safe for the same reason that
// committing it was: every rule is a condition on the versions of its rows. A
// Change without needs is put, or merged, twice.
//
// A commit is durable when Commit returns nil, if the server keeps its own
// promise: with synchronous_commit or fsync off, or a failover to a standby that
// replicates asynchronously, claims can be lost, and then an effect can happen
// twice. Examine says so. Lease ends and deliveries alone are committed without
// waiting for the disk; losing them leads to a query or a replay too many.
//
// # Time
//
// The server's clock is the ledger's: leases and due times of all hosts are
// judged by it, inside the statement, and the clocks of the hosts do not matter.
// It is read with every statement. Between two of them [Store.Clock] tells the
// time from the last reading and the machine's monotonic clock: a little behind,
// never ahead. The latest moment is noted every second, so that the clock does
// not go back when another server takes over.
//
// # Waiting
//
// A commit wakes those who watch the operation, in this process at once, in
// others by NOTIFY, sent behind the commit and for many at once: inside of it it
// would make all commits of the database queue up. Whoever watches looks by
// himself too, every two seconds, and every 100 ms where there is no LISTEN.
//
// # Sharing
//
// There is no leader, nor a lock that outlives a transaction, which is one
// statement long for all but effects in the ledger's own. Recoverers of all
// hosts list what is due and take it by compare-and-set. A host that has died is
// replaced in the sense of package idem: its leases end, its outcomes are
// reconciled. A ledger has an id; a connection that finds another one in its
// place, or a schema of another version, is refused (ErrGone, ErrSchemaNew).
//
// # Poolers
//
// Behind a pooler that gives each transaction another connection (PgBouncer in
// transaction mode), add pooler=transaction to the URL: then no statement is
// prepared, the limits of time are the client's and not set on the connection,
// and waiting is by looking.
//
// # Growth
//
// Expired operations are deleted or shrink one by one, as the guard's retention
// says, and autovacuum gives the space to new ones. The tables ask for it at 5 %
// of dead rows. A call of 300 bytes of arguments and 400 bytes of result takes
// 1.9 to 2.2 KB of table, 0.2 KB of indexes and 2.8 KB of WAL; 1.5 KB are left
// of it after a vacuum (BenchmarkGrowth, PostgreSQL 15).
package pgstore
