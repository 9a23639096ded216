package idem

import (
	"bytes"
	"cmp"
	"slices"
)

// Kind is the kind of a durable row.
type Kind uint8

const (
	KindOperation Kind = iota + 1 // Record, by operation
	KindKey                       // KeyRow, by business key
	KindSlot                      // Slot, by what makes twins
	KindDelivery                  // Delivered, by slot and run
	KindAlias                     // Alias, by slot and a client's call id
	KindCommand                   // CommandRow, by an operator's command id
	KindTask                      // TaskRow, by tenant and task: see TaskRef
)

// Kinds lists every kind of row.
func Kinds() []Kind {
	return []Kind{KindOperation, KindKey, KindSlot, KindDelivery, KindAlias, KindCommand, KindTask}
}

// Ref names a row.
type Ref struct {
	Kind Kind `cbor:"1,keyasint"`
	ID   ID   `cbor:"2,keyasint"`
}

// Compare orders rows by kind, then by id.
func (r Ref) Compare(o Ref) int {
	if c := cmp.Compare(r.Kind, o.Kind); c != 0 {
		return c
	}
	return bytes.Compare(r.ID[:], o.ID[:])
}

// Row is one durable row. Exactly the pointer that its Ref's kind names is set.
type Row struct {
	Ref       Ref         `cbor:"1,keyasint"`
	Version   Version     `cbor:"2,keyasint,omitempty"` // set by the store on Load
	Operation *Record     `cbor:"3,keyasint,omitempty"`
	Key       *KeyRow     `cbor:"4,keyasint,omitempty"`
	Slot      *Slot       `cbor:"5,keyasint,omitempty"`
	Delivered *Delivered  `cbor:"6,keyasint,omitempty"`
	Alias     *Alias      `cbor:"7,keyasint,omitempty"`
	Command   *CommandRow `cbor:"8,keyasint,omitempty"`
	Task      *TaskRow    `cbor:"9,keyasint,omitempty"`
}

// KeyRow points at the current generation of a business key.
type KeyRow struct {
	Generation uint32 `cbor:"1,keyasint"`
}

// Slot holds what occurrences of one request in one task have in common: one
// tenant, tool, operation, task, incarnation and request hash.
type Slot struct {
	N     uint64 `cbor:"1,keyasint,omitempty"` // occurrences so far
	Floor uint64 `cbor:"2,keyasint,omitempty"` // all up to here were delivered and deleted
	Open  []ID   `cbor:"3,keyasint,omitempty"` // operations that may be unsettled; settled ones are dropped lazily
}

// Alias points from a client's call id to the operation it met.
type Alias struct {
	Operation ID `cbor:"1,keyasint"`
}

// CommandRow is an operator's decision that was carried out; the same command id
// decides once.
type CommandRow struct {
	Operation ID      `cbor:"1,keyasint"`
	Verb      string  `cbor:"2,keyasint"`
	Version   Version `cbor:"3,keyasint"` // of the operation after it
	At        Instant `cbor:"4,keyasint"`
}

// TaskRow is what an agent wants to find again when it resumes a task, beside
// the task's operations. It does not expire.
type TaskRow struct {
	Tenant string `cbor:"1,keyasint,omitempty"`
	Task   string `cbor:"2,keyasint"`
	Notes  []Note `cbor:"3,keyasint,omitempty"` // in the order of their first writing
}

// Note is one fact about a task. Kind and Name tell it from the others.
type Note struct {
	Kind  string  `cbor:"1,keyasint"`
	Name  string  `cbor:"2,keyasint"`
	Value string  `cbor:"3,keyasint,omitempty"`
	Step  string  `cbor:"4,keyasint,omitempty"` // in which it was written last
	Run   string  `cbor:"5,keyasint,omitempty"`
	At    Instant `cbor:"6,keyasint,omitempty"`
}

// TaskRef names the row of a task.
func TaskRef(tenant, task string) Ref { return Ref{KindTask, id("task", tenant, task)} }

// Delivered is a set of occurrence numbers whose outcome one run has in hand.
// It only grows.
type Delivered struct {
	Upto  uint64   `cbor:"1,keyasint,omitempty"` // all of 1 to Upto
	Extra []uint64 `cbor:"2,keyasint,omitempty"` // above Upto+1, ascending
}

// Has reports whether n is in the set.
func (d *Delivered) Has(n uint64) bool {
	if d == nil {
		return false
	}
	if n <= d.Upto {
		return true
	}
	_, ok := slices.BinarySearch(d.Extra, n)
	return ok
}

// Add puts n into the set.
func (d *Delivered) Add(n uint64) {
	if d.Has(n) {
		return
	}
	i, _ := slices.BinarySearch(d.Extra, n)
	d.Extra = slices.Insert(d.Extra, i, n)
	d.close()
}

// Merge adds every member of o.
func (d *Delivered) Merge(o *Delivered) {
	if o == nil {
		return
	}
	d.Upto = max(d.Upto, o.Upto)
	for _, n := range o.Extra {
		d.Add(n)
	}
	d.Extra = slices.DeleteFunc(d.Extra, func(n uint64) bool { return n <= d.Upto })
	d.close()
}

func (d *Delivered) close() {
	for len(d.Extra) > 0 && d.Extra[0] == d.Upto+1 {
		d.Upto++
		d.Extra = d.Extra[1:]
	}
}
