package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
)

// KeySource says which way a key was derived. It is part of the key: the same
// text from two sources is two keys.
type KeySource string

const (
	SourceBusiness   KeySource = "business"   // fields of the arguments named by the policy
	SourceHost       KeySource = "host"       // _meta["mcp-idem/key"] or the Go API
	SourceStep       KeySource = "step"       // task and step, named by the host
	SourceGeneric    KeySource = "generic"    // a client's idempotency key
	SourceOccurrence KeySource = "occurrence" // task, canonical arguments and a number
	SourceNone       KeySource = "none"       // no task can be known: each ask is its own operation
)

// id hashes length-prefixed parts, so that no two lists of parts meet.
func id(kind string, parts ...string) ID {
	buf := make([]byte, 0, 256)
	var n [8]byte
	for _, p := range append([]string{kind}, parts...) {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		buf = append(append(buf, n[:]...), p...)
	}
	sum := sha256.Sum256(buf)
	return ID(sum[:20])
}

// OperationID derives the operation's ID, which is also the key sent outside,
// from scope, identity and generation. identity are the parts that the source
// names; incarnation is empty unless the upstream's state lives in its process.
func OperationID(s Scope, src KeySource, incarnation string, generation uint32, identity ...string) ID {
	parts := append([]string{s.Tenant, s.Tool, s.Operation, string(src), incarnation, strconv.FormatUint(uint64(generation), 10)}, identity...)
	return id("op", parts...)
}

func keyID(s Scope, businessKey string) ID {
	return id("key", s.Tenant, s.Tool, s.Operation, businessKey)
}

func slotID(s Scope, incarnation, task string, h Hash) ID {
	return id("slot", s.Tenant, s.Tool, s.Operation, incarnation, task, string(h[:]))
}

func deliveryID(slot ID, run string) ID { return id("delivery", string(slot[:]), run) }

func aliasID(slot ID, alias string) ID { return id("alias", string(slot[:]), alias) }

// CommandID names the row of an operator's command.
func commandID(command string) ID { return id("command", command) }
