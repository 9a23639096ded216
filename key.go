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

// hasher makes an ID of length-prefixed parts, so that no two lists of parts
// meet.
type hasher struct {
	buf []byte
	arr [320]byte
}

func (h *hasher) begin(kind string) { h.buf = h.arr[:0]; h.add(kind) }

func (h *hasher) add(part string) {
	h.buf = append(binary.BigEndian.AppendUint64(h.buf, uint64(len(part))), part...)
}

func (h *hasher) scope(s Scope) {
	h.add(s.Tenant)
	h.add(s.Tool)
	h.add(s.Operation)
}

func (h *hasher) id() ID {
	sum := sha256.Sum256(h.buf)
	return ID(sum[:20])
}

func id(kind string, parts ...string) ID {
	var h hasher
	h.begin(kind)
	for _, p := range parts {
		h.add(p)
	}
	return h.id()
}

// OperationID derives the operation's ID, which is also the key sent outside,
// from scope, identity and generation. identity are the parts that the source
// names; incarnation is empty unless the upstream's state lives in its process.
func OperationID(s Scope, src KeySource, incarnation string, generation uint32, identity ...string) ID {
	var h hasher
	h.begin("op")
	h.scope(s)
	h.add(string(src))
	h.add(incarnation)
	h.add(strconv.FormatUint(uint64(generation), 10))
	for _, p := range identity {
		h.add(p)
	}
	return h.id()
}

func keyID(s Scope, businessKey string) ID {
	return id("key", s.Tenant, s.Tool, s.Operation, businessKey)
}

func slotID(s Scope, incarnation, task string, h Hash) ID {
	return id("slot", s.Tenant, s.Tool, s.Operation, incarnation, task, string(h[:]))
}

func deliveryID(slot ID, run string) ID { return id("delivery", string(slot[:]), run) }

// viewID is the slot of the operations whose baselines look at the same.
func viewID(s Scope, view string) ID { return id("view", s.Tenant, ServerOf(s.Tool), view) }

func aliasID(slot ID, alias string) ID { return id("alias", string(slot[:]), alias) }

// commandID names the row of an operator's command.
func commandID(command string) ID { return id("command", command) }
