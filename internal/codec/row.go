package codec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	idem "github.com/mcp-idem/mcp-idem"
)

// Format is the first byte of every stored row.
const Format = 1

// HeaderSize is the number of bytes before a row's body.
const HeaderSize = 1 + 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Check reports whether exactly the pointer that the row's kind names is set.
func Check(r *idem.Row) error {
	want, n := body(r)
	if want == nil {
		return fmt.Errorf("row %d/%s: the kind and the content do not agree", r.Ref.Kind, r.Ref.ID)
	}
	if n != 1 {
		return fmt.Errorf("row %d/%s: %d contents, want one", r.Ref.Kind, r.Ref.ID, n)
	}
	return nil
}

// Body encodes a row's content. The work is done by the caller of a commit,
// outside of the transaction.
func Body(r *idem.Row) ([]byte, error) {
	if err := Check(r); err != nil {
		return nil, err
	}
	v, _ := body(r)
	return Marshal(v)
}

// Seal puts the header before a body.
func Seal(ref idem.Ref, version idem.Version, body []byte) []byte {
	b := make([]byte, HeaderSize, HeaderSize+len(body))
	b[0] = Format
	binary.BigEndian.PutUint64(b[1:], uint64(version))
	binary.BigEndian.PutUint32(b[9:], sum(ref, b[1:9], body))
	return append(b, body...)
}

// Version reads the version of a stored row without decoding it. It does not
// check the body.
func Version(b []byte) (idem.Version, error) {
	if err := header(b); err != nil {
		return 0, err
	}
	return idem.Version(binary.BigEndian.Uint64(b[1:])), nil
}

// Sound checks the header and the checksum of a stored row without decoding it.
func Sound(ref idem.Ref, b []byte) error {
	if err := header(b); err != nil {
		return fmt.Errorf("row %d/%s: %w", ref.Kind, ref.ID, err)
	}
	if got := binary.BigEndian.Uint32(b[9:]); got != sum(ref, b[1:9], b[HeaderSize:]) {
		return fmt.Errorf("row %d/%s: %w: the checksum does not match", ref.Kind, ref.ID, ErrMalformed)
	}
	return nil
}

// Open decodes a stored row. The result shares nothing with b.
func Open(ref idem.Ref, b []byte) (idem.Row, error) {
	if err := Sound(ref, b); err != nil {
		return idem.Row{}, err
	}
	v := idem.Version(binary.BigEndian.Uint64(b[1:]))
	r := idem.Row{Ref: ref, Version: v}
	into, err := target(&r)
	if err != nil {
		return idem.Row{}, err
	}
	if err := Unmarshal(b[HeaderSize:], into); err != nil {
		return idem.Row{}, fmt.Errorf("row %d/%s: %w", ref.Kind, ref.ID, err)
	}
	if r.Operation != nil {
		r.Operation.Version = v
	}
	return r, nil
}

func header(b []byte) error {
	switch {
	case len(b) < HeaderSize:
		return fmt.Errorf("%w: %d bytes, shorter than a header", ErrMalformed, len(b))
	case b[0] == 0:
		return fmt.Errorf("%w: no format byte", ErrMalformed)
	case b[0] != Format:
		return fmt.Errorf("%w: format %d, this program reads %d", ErrMalformed, b[0], Format)
	}
	return nil
}

func sum(ref idem.Ref, version, body []byte) uint32 {
	c := crc32.Update(0, castagnoli, []byte{byte(ref.Kind)})
	c = crc32.Update(c, castagnoli, ref.ID[:])
	c = crc32.Update(c, castagnoli, version)
	return crc32.Update(c, castagnoli, body)
}

// body is the content that the row's kind names, nil if it is not set, and the
// number of contents that are set.
func body(r *idem.Row) (v any, n int) {
	pick := func(k idem.Kind, set bool, p any) {
		if !set {
			return
		}
		n++
		if r.Ref.Kind == k {
			v = p
		}
	}
	pick(idem.KindOperation, r.Operation != nil, r.Operation)
	pick(idem.KindKey, r.Key != nil, r.Key)
	pick(idem.KindSlot, r.Slot != nil, r.Slot)
	pick(idem.KindDelivery, r.Delivered != nil, r.Delivered)
	pick(idem.KindAlias, r.Alias != nil, r.Alias)
	pick(idem.KindCommand, r.Command != nil, r.Command)
	pick(idem.KindTask, r.Task != nil, r.Task)
	return v, n
}

// target allocates the content that the row's kind names.
func target(r *idem.Row) (any, error) {
	switch r.Ref.Kind {
	case idem.KindOperation:
		r.Operation = new(idem.Record)
		return r.Operation, nil
	case idem.KindKey:
		r.Key = new(idem.KeyRow)
		return r.Key, nil
	case idem.KindSlot:
		r.Slot = new(idem.Slot)
		return r.Slot, nil
	case idem.KindDelivery:
		r.Delivered = new(idem.Delivered)
		return r.Delivered, nil
	case idem.KindAlias:
		r.Alias = new(idem.Alias)
		return r.Alias, nil
	case idem.KindCommand:
		r.Command = new(idem.CommandRow)
		return r.Command, nil
	case idem.KindTask:
		r.Task = new(idem.TaskRow)
		return r.Task, nil
	}
	return nil, fmt.Errorf("%w: unknown kind of row %d", ErrMalformed, r.Ref.Kind)
}

// Clone returns a row that shares nothing with r, by way of its encoding.
func Clone(r idem.Row) (idem.Row, error) {
	b, err := Body(&r)
	if err != nil {
		return idem.Row{}, err
	}
	return Open(r.Ref, Seal(r.Ref, r.Version, b))
}
