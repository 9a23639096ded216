package core

import (
	"fmt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Tx is what planning needs of a store's transaction: it sees the writes of the
// plans that were carried out in it before.
type Tx interface {
	// Get returns a stored row as codec.Seal made it, nil if there is none. The
	// bytes are valid until the transaction's next write.
	Get(ref idem.Ref) ([]byte, error)
}

// Prepared is a Change that was checked and encoded, outside of any transaction.
type Prepared struct {
	Change *idem.Change
	bodies [][]byte // of Change.Puts
}

// Prepare checks and encodes a Change. The Change must not be changed until it
// is committed.
func Prepare(c *idem.Change) (*Prepared, error) {
	p := &Prepared{Change: c, bodies: make([][]byte, len(c.Puts))}
	for i := range c.Puts {
		b, err := codec.Body(&c.Puts[i])
		if err != nil {
			return nil, err
		}
		p.bodies[i] = b
	}
	if ref, twice := repeated(c); twice {
		return nil, fmt.Errorf("row %d/%s is put or dropped twice in one change", ref.Kind, ref.ID)
	}
	for i := range c.Marks {
		if err := checkMark(&c.Marks[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Heartbeat reports whether the Change does nothing but extend leases, for
// which nothing has to be stored.
func (p *Prepared) Heartbeat() bool {
	c := p.Change
	if len(c.Needs)+len(c.Puts)+len(c.Drops) > 0 {
		return false
	}
	for i := range c.Marks {
		if c.Marks[i].LeaseEnd == 0 {
			return false
		}
	}
	return true
}

func repeated(c *idem.Change) (idem.Ref, bool) {
	for i := range c.Puts {
		for j := range i {
			if c.Puts[j].Ref == c.Puts[i].Ref {
				return c.Puts[i].Ref, true
			}
		}
		for _, ref := range c.Drops {
			if ref == c.Puts[i].Ref {
				return ref, true
			}
		}
	}
	for i, ref := range c.Drops {
		for j := range i {
			if c.Drops[j] == ref {
				return ref, true
			}
		}
	}
	return idem.Ref{}, false
}

func checkMark(m *idem.Mark) error {
	n := 0
	want := idem.KindOperation
	if m.Delivered != nil {
		n, want = n+1, idem.KindDelivery
	}
	if m.Alias != nil {
		n, want = n+1, idem.KindAlias
	}
	if m.LeaseEnd != 0 {
		n++
	}
	if m.Twin != (idem.ID{}) {
		n, want = n+1, idem.KindSlot
	}
	if n != 1 || m.Ref.Kind != want {
		return fmt.Errorf("mark on row %d/%s: the kind and the content do not agree", m.Ref.Kind, m.Ref.ID)
	}
	return nil
}

// Write is one row to store, or to delete where Sealed is nil.
type Write struct {
	Ref    idem.Ref
	Sealed []byte
	Old    *idem.Record // of an operation as stored before; nil: there was none
	New    *idem.Record // of an operation; nil: deleted
	row    *idem.Row    // what Sealed holds, as far as it is known
}

// Plan is what a Change that may be applied does.
type Plan struct {
	Writes []Write
	leases []idem.Mark
}

// Settle carries the plan's effects on what lives in memory, after its writes
// are durable.
func (p *Plan) Settle(l *Leases, w *Watchers) {
	var changed []idem.ID
	for i := range p.Writes {
		if wr := &p.Writes[i]; wr.Ref.Kind == idem.KindOperation {
			l.Settle(wr.Ref.ID, wr.New)
			changed = append(changed, wr.Ref.ID)
		}
	}
	for i := range p.leases {
		m := &p.leases[i]
		l.Extend(m.Ref.ID, m.Token, m.LeaseEnd)
	}
	w.Wake(changed)
}
