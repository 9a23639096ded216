package core

import (
	"fmt"
	"slices"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Plan judges the needs of a Change at the moment now and plans its writes. It
// writes nothing itself: an error, a *idem.Conflict among them, leaves the
// transaction as it was, for the next Change to use.
func (p *Prepared) Plan(tx Tx, now idem.Instant, leases *Leases) (*Plan, error) {
	tx = &once{Tx: tx}
	for i := range p.Change.Needs {
		if err := judge(tx, &p.Change.Needs[i], now, leases); err != nil {
			return nil, err
		}
	}
	plan := &Plan{Writes: make([]Write, 0, len(p.Change.Puts)+len(p.Change.Drops)+len(p.Change.Marks))}
	for i := range p.Change.Puts {
		if err := plan.put(tx, &p.Change.Puts[i], p.bodies[i]); err != nil {
			return nil, err
		}
	}
	for _, ref := range p.Change.Drops {
		if err := plan.drop(tx, ref); err != nil {
			return nil, err
		}
	}
	for i := range p.Change.Marks {
		if err := plan.mark(tx, &p.Change.Marks[i]); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// once remembers the last operation that was decoded: most changes look at one
// operation, to judge its lease and to move its index entries.
type once struct {
	Tx
	bytes []byte
	rec   idem.Record
}

// operation decodes a stored operation. The copy is the caller's to change at
// the top; its slices are shared.
func operation(tx Tx, ref idem.Ref, b []byte) (*idem.Record, error) {
	o, ok := tx.(*once)
	if ok && len(o.bytes) > 0 && &o.bytes[0] == &b[0] && len(o.bytes) == len(b) {
		c := o.rec
		return &c, nil
	}
	row, err := codec.Open(ref, b)
	if err != nil {
		return nil, err
	}
	if ok {
		o.bytes, o.rec = b, *row.Operation
	}
	return row.Operation, nil
}

func judge(tx Tx, n *idem.Need, now idem.Instant, leases *Leases) error {
	b, err := tx.Get(n.Ref)
	if err != nil {
		return err
	}
	have, err := version(n.Ref, b)
	if err != nil {
		return err
	}
	if have != n.Version {
		return &idem.Conflict{Ref: n.Ref, Have: have, Want: n.Version, Why: "version"}
	}
	if n.Lease == idem.LeaseAny {
		return nil
	}
	var lease idem.Lease
	if b != nil && n.Ref.Kind == idem.KindOperation {
		rec, err := operation(tx, n.Ref, b)
		if err != nil {
			return err
		}
		leases.Overlay(n.Ref.ID, rec)
		lease = rec.Lease
	}
	var holds bool
	switch n.Lease {
	case idem.LeaseHeld:
		holds = lease.Token == n.Token && lease.End > now
	case idem.LeaseOver:
		holds = lease.End <= now
	default:
		return fmt.Errorf("row %d/%s: unknown need of a lease: %d", n.Ref.Kind, n.Ref.ID, n.Lease)
	}
	if !holds {
		return &idem.Conflict{Ref: n.Ref, Have: have, Want: n.Version, Why: "lease"}
	}
	return nil
}

func version(ref idem.Ref, b []byte) (idem.Version, error) {
	if b == nil {
		return 0, nil
	}
	v, err := codec.Version(b)
	if err != nil {
		return 0, fmt.Errorf("row %d/%s: %w", ref.Kind, ref.ID, err)
	}
	return v, nil
}

// stored reads what a write replaces: the version, and the record of an
// operation, which the indexes are maintained from.
func stored(tx Tx, ref idem.Ref) (v idem.Version, old *idem.Record, err error) {
	b, err := tx.Get(ref)
	if err != nil || b == nil {
		return 0, nil, err
	}
	if ref.Kind != idem.KindOperation {
		v, err = version(ref, b)
		return v, nil, err
	}
	old, err = operation(tx, ref, b)
	if err != nil {
		return 0, nil, err
	}
	return old.Version, old, nil
}

func (p *Plan) put(tx Tx, row *idem.Row, body []byte) error {
	v, old, err := stored(tx, row.Ref)
	if err != nil {
		return err
	}
	p.Writes = append(p.Writes, Write{
		Ref: row.Ref, Sealed: codec.Seal(row.Ref, v+1, body),
		Old: old, New: row.Operation, row: row,
	})
	return nil
}

func (p *Plan) drop(tx Tx, ref idem.Ref) error {
	v, old, err := stored(tx, ref)
	if err != nil || v == 0 {
		return err
	}
	p.Writes = append(p.Writes, Write{Ref: ref, Old: old})
	return nil
}

// mark plans a mark on what the row will be after the writes so far.
func (p *Plan) mark(tx Tx, m *idem.Mark) error {
	have, err := p.current(tx, m.Ref)
	if err != nil {
		return err
	}
	next := idem.Row{Ref: m.Ref}
	switch {
	case m.LeaseEnd != 0:
		if have != nil && Claimed(have.Operation, m.Token) {
			p.leases = append(p.leases, *m)
		}
		return nil
	case m.Alias != nil:
		if have != nil {
			return nil
		}
		next.Alias = m.Alias
	case m.Twin != (idem.ID{}):
		next.Slot = &idem.Slot{}
		if have != nil {
			if slices.Contains(have.Slot.Open, m.Twin) {
				return nil
			}
			*next.Slot = *have.Slot
		}
		next.Slot.Open = append(slices.Clip(next.Slot.Open), m.Twin)
	case m.Delivered != nil:
		next.Delivered = &idem.Delivered{}
		if have != nil {
			next.Delivered.Merge(have.Delivered)
		}
		if have != nil && includes(have.Delivered, m.Delivered) {
			return nil
		}
		next.Delivered.Merge(m.Delivered)
	}
	body, err := codec.Body(&next)
	if err != nil {
		return err
	}
	return p.merge(tx, &next, body)
}

// merge puts a marked row, into the write of the same row if there is one.
func (p *Plan) merge(tx Tx, row *idem.Row, body []byte) error {
	v, _, err := stored(tx, row.Ref)
	if err != nil {
		return err
	}
	w := Write{Ref: row.Ref, Sealed: codec.Seal(row.Ref, v+1, body), row: row}
	for i := range p.Writes {
		if p.Writes[i].Ref == row.Ref {
			p.Writes[i] = w
			return nil
		}
	}
	p.Writes = append(p.Writes, w)
	return nil
}

// current is the row as the writes so far leave it; nil: there is none.
func (p *Plan) current(tx Tx, ref idem.Ref) (*idem.Row, error) {
	for i := range p.Writes {
		if p.Writes[i].Ref == ref {
			return p.Writes[i].row, nil
		}
	}
	b, err := tx.Get(ref)
	if err != nil || b == nil {
		return nil, err
	}
	row, err := codec.Open(ref, b)
	return &row, err
}

func includes(have, more *idem.Delivered) bool {
	if more.Upto > have.Upto {
		return false
	}
	for _, n := range more.Extra {
		if !have.Has(n) {
			return false
		}
	}
	return true
}
