// Package boltstore is the default ledger: one bbolt file on a local disk, held
// by one process, which serves the other processes of the same user over a
// socket beside it.
//
// # Files
//
//	ledger.db       the rows, mode 0600
//	ledger.db.id    a marker with the ledger's id: a ledger exists here. It is
//	                written once, after the first commit, and never removed.
//	ledger.db.pid   the holder's process id, a hint for messages
//	ledger.db.sock  the holder's socket, mode 0600
//
// A file that is missing, empty or another ledger's while the marker is there is
// ErrGone: an empty ledger in its place would let every recorded effect happen
// once more. Config.NewLedger says that this is wanted. Where the socket's path
// is too long for the system, the socket lies in a private directory under
// os.TempDir, named by a hash of the path.
//
// # Format
//
// Keys are 20-byte ids, values are rows as package codec seals them (format
// byte, version, checksum, CBOR). Index keys have a fixed width. The free list is
// not stored: a commit's cost does not grow with the ledger, nor with what was
// deleted from it; opening scans the file instead. The file never shrinks;
// Compact writes a smaller one.
//
// # Durability and crashes
//
// Commit returns nil after the data and then the root of the new tree were
// synced. A process that is killed leaves the last root that was written: every
// commit that returned nil is there, one that did not return is there whole or
// not at all. Lease ends that were extended by marks, and nothing else, live in
// memory: after a restart such a lease looks over too early (see
// Config.LeaseGrace), which leads to reconciliation and never to a dispatch.
//
//	failure                          result                  the store afterwards
//	no space for the new pages       ErrFull, not applied    works on; commits work once there is space
//	writing fails otherwise          ErrCommitUnknown        ErrBroken until opened again
//	syncing fails                    ErrCommitUnknown        ErrBroken until opened again
//	damage is met, or a page fault   ErrDamaged              ErrBroken until opened again
//
// After a failed sync the kernel may show what the disk does not have, so not
// even a read can be trusted: a claim that is seen and lost in the next power
// failure would be an effect without a record. Therefore reads are refused too.
// Opening again verifies the structure of the file; whether the disk is to be
// trusted is for its owner to say.
//
// # Opening
//
// Open takes the lock, or fails with ErrLocked within Config.LockWait. Then it
// verifies the whole structure of the file by reading it, before bbolt maps it:
// damage is one message, never a panic nor a fault. It neither repairs nor
// replaces anything.
//
// # Concurrency
//
// A Store is safe for concurrent use. Commits are grouped without a timer: the
// first caller commits at once, on its own goroutine; whoever comes while it
// syncs shares the next transaction, which the first of them runs. Needs are
// judged one Change after the other inside the transaction; a conflict drops that
// Change and no other. Readers never wait for a commit.
//
// # Sharing
//
// A process that asks the holder waits two seconds at most. Its request says until
// when, and a holder that was stopped and finds it later does nothing. The lock
// stays with a holder that is stopped, since it may wake in the middle of a write:
// the others are refused until it goes on or ends. When it ends, the next call of
// any of them takes over.
//
// # Effects
//
// A tool that keeps its data in this very file can make its effects in the
// transaction that records them: see [Store.Effect]. Its buckets lie beside the
// ledger's. Verify checks their pages and Compact takes them along; Export leaves
// them out.
//
// # Clock
//
// The ledger's clock starts at the later of the wall clock and the highest
// moment stored, which every commit stores, and runs on the monotonic clock. The
// other processes tell it from what the holder told them within the last second.
package boltstore
