package pgstore

import (
	"fmt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// sealed is a row's content as both tables keep it. The version is a column, so
// the seal is over version 0.
func sealed(r *idem.Row) ([]byte, error) {
	b, err := codec.Body(r)
	if err != nil {
		return nil, err
	}
	return codec.Seal(r.Ref, 0, b), nil
}

// opener is codec.Open, or its stricter sibling.
type opener func(ref idem.Ref, b []byte) (idem.Row, error)

func (open opener) row(ref idem.Ref, version idem.Version, b []byte) (idem.Row, error) {
	row, err := open(ref, b)
	if err != nil {
		return idem.Row{}, err
	}
	row.Version = version
	if row.Operation != nil {
		row.Operation.Version = version
	}
	return row, nil
}

// key is the primary key of an entry: its kind in one byte, then its id.
func key(ref idem.Ref) []byte {
	return append([]byte{byte(ref.Kind)}, ref.ID[:]...)
}

func refOf(key []byte) (ref idem.Ref, err error) {
	if len(key) != 1+len(ref.ID) {
		return ref, fmt.Errorf("%w: an entry's key of %d bytes", codec.ErrMalformed, len(key))
	}
	ref.Kind = idem.Kind(key[0])
	copy(ref.ID[:], key[1:])
	return ref, nil
}

func idOf(b []byte) (id idem.ID, err error) {
	if len(b) != len(id) {
		return id, fmt.Errorf("%w: an id of %d bytes", codec.ErrMalformed, len(b))
	}
	copy(id[:], b)
	return id, nil
}

// entry is a row of the table of that name, without key and version. A slot's
// open twins and what a delivery holds are columns, so that a mark can be merged
// where the row lies.
type entry struct {
	body    []byte
	members [][]byte
	upto    int64
	extra   []int64
}

func newEntry(r *idem.Row) (e entry, err error) {
	switch {
	case r.Delivered != nil:
		return delivery(r.Delivered), nil
	case r.Slot != nil:
		bare := *r
		slot := *r.Slot
		bare.Slot = &slot
		slot.Open = nil
		e.members = members(r.Slot.Open)
		e.body, err = sealed(&bare)
		return e, err
	}
	e.body, err = sealed(r)
	return e, err
}

func delivery(d *idem.Delivered) entry {
	e := entry{upto: int64(d.Upto), extra: make([]int64, 0, len(d.Extra))}
	for _, n := range d.Extra {
		e.extra = append(e.extra, int64(n))
	}
	return e
}

func members(ids []idem.ID) [][]byte {
	out := make([][]byte, 0, len(ids))
	for i := range ids {
		out = append(out, ids[i][:])
	}
	return out
}

// entry is the inverse of newEntry.
func (open opener) entry(ref idem.Ref, version idem.Version, e *entry) (idem.Row, error) {
	if ref.Kind == idem.KindDelivery {
		d := &idem.Delivered{Upto: uint64(e.upto)}
		for _, n := range e.extra {
			d.Extra = append(d.Extra, uint64(n))
		}
		return idem.Row{Ref: ref, Version: version, Delivered: d}, nil
	}
	row, err := open.row(ref, version, e.body)
	if err != nil || row.Slot == nil {
		return row, err
	}
	for _, b := range e.members {
		id, err := idOf(b)
		if err != nil {
			return row, fmt.Errorf("row %d/%s: %w", ref.Kind, ref.ID, err)
		}
		row.Slot.Open = append(row.Slot.Open, id)
	}
	return row, nil
}

// operation decodes a record, with the lease end that marks extended.
func (open opener) operation(id []byte, version idem.Version, leaseEnd idem.Instant, body []byte) (idem.Row, error) {
	op, err := idOf(id)
	if err != nil {
		return idem.Row{}, err
	}
	row, err := open.row(idem.Ref{Kind: idem.KindOperation, ID: op}, version, body)
	if err != nil {
		return row, err
	}
	if r := row.Operation; r.State == idem.StateStarted && r.Lease.End != 0 {
		r.Lease.End = max(r.Lease.End, leaseEnd)
	}
	return row, nil
}
