package core

import (
	"crypto/sha256"
	"encoding/binary"

	idem "github.com/mcp-idem/mcp-idem"
)

// Index names one of the orders that a store keeps its operations in. Every key
// has a fixed width, ends with the operation's 20-byte id and begins with a
// prefix that a query names:
//
//	IndexID     id
//	IndexDue    hash(tenant, server) 8 | due 8 | id, but for STARTED
//	IndexState  hash(state) 8 | id, but for COMMITTED
//	IndexTask   hash(tenant, task) 8 | created 8 | id
//
// Two names may share a hash: who reads an index compares the record's own.
//
// Two states are left out for the sake of what a call writes. Nearly all
// operations end up COMMITTED: those are listed from IndexID, which has the same
// order, and IndexState stays small. An operation is STARTED for as long as a
// call runs, so there are few, and their ends move with every heartbeat: who asks
// what is due reads all of them by way of IndexState.
type Index uint8

const (
	IndexID Index = iota
	IndexDue
	IndexState
	IndexTask
)

// Indexes lists those that a store has to maintain beside the rows.
func Indexes() []Index { return []Index{IndexDue, IndexState, IndexTask} }

const (
	hashSize = 8
	timeSize = 8
	idSize   = len(idem.ID{})
)

// IndexKey is the record's key in an index; nil: it is not in it.
func IndexKey(ix Index, id idem.ID, r *idem.Record) []byte {
	switch ix {
	case IndexID:
		return id[:]
	case IndexDue:
		if due := r.Due(); due != 0 && r.State != idem.StateStarted {
			return join(hash("due", r.Scope.Tenant, r.Server()), moment(due), id)
		}
	case IndexState:
		if r.State == idem.StateCommitted {
			return nil
		}
		return join(hash("state", string(r.State)), nil, id)
	case IndexTask:
		if r.Task != "" {
			return join(hash("task", r.Scope.Tenant, r.Task), moment(r.CreatedAt), id)
		}
	}
	return nil
}

// IDOf is the operation that an index key ends with.
func IDOf(key []byte) (id idem.ID) {
	copy(id[:], key[len(key)-idSize:])
	return id
}

func join(prefix, t []byte, id idem.ID) []byte {
	key := make([]byte, 0, len(prefix)+len(t)+idSize)
	return append(append(append(key, prefix...), t...), id[:]...)
}

func hash(kind string, parts ...string) []byte {
	buf := append(make([]byte, 0, 128), kind...)
	for _, p := range parts {
		buf = append(binary.BigEndian.AppendUint64(buf, uint64(len(p))), p...)
	}
	sum := sha256.Sum256(buf)
	return sum[:hashSize]
}

// moment sorts as the instants do, also before 1970.
func moment(i idem.Instant) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(i)^(1<<63))
}
