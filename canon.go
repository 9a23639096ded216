package idem

import (
	"crypto/sha256"
	"encoding/binary"
)

// Hash is the request hash: a version byte and a SHA-256 over the canonical
// form of (tenant, tool, operation, arguments).
type Hash [33]byte

// hashVersion changes whenever the canonical form does, so that a ledger
// written by an older build never takes an equal request for another one
// without anybody seeing why.
const hashVersion = 1

// Selection says which members of the arguments count. A path goes through
// objects only: it never reaches into an array.
type Selection struct {
	// Only keeps the members at these paths, and what leads to them; empty: all.
	Only []Path
	// Except drops the members at these paths, also out of what Only keeps.
	Except []Path
}

// HashRequest hashes a request from the raw bytes of its arguments; nil means
// no arguments, which is not the same as {}. Members that the selection drops
// must be well-formed all the same. The error names the place and is
// INVALID_ARGUMENTS.
func HashRequest(s Scope, args []byte, sel Selection) (Hash, error) {
	c := newCanon()
	defer c.free()
	for _, part := range [...]string{s.Tenant, s.Tool, s.Operation} {
		c.out = binary.BigEndian.AppendUint64(c.out, uint64(len(part)))
		c.out = append(c.out, part...)
	}
	if args == nil {
		c.out = append(c.out, 0)
	} else {
		c.out = append(c.out, 1)
		c.reset(args)
		if k := c.dec.PeekKind(); k != '{' && k != 0 {
			return Hash{}, invalid("", "the arguments are no object but %s", k)
		}
		if err := c.document(sel); err != nil {
			return Hash{}, err
		}
	}
	sum := sha256.Sum256(c.out)
	var h Hash
	h[0] = hashVersion
	copy(h[1:], sum[:])
	return h, nil
}

// Canonical returns the canonical form of one JSON value: what the hash is
// made of, and what values of plain paths are compared by. Two values are
// equal if and only if their canonical forms are. The form is itself JSON:
//
//   - no white space; members sorted by name as RFC 8785 does (by UTF-16 code
//     units);
//   - strings with every escape decoded and only those written again that JSON
//     demands, otherwise untouched: no Unicode normalisation;
//   - numbers by their exact decimal value, laid out as RFC 8785 does but with
//     all their digits: -0 is 0, and 1, 1.0, 1e0 and 10e-1 are 1.
//
// Refused are duplicate names, invalid UTF-8, lone surrogates, more than 200
// nested arrays and objects, and numbers which, written as d.ddd times a power
// of ten without needless zeros, have more than 1,000 digits or an exponent
// outside ±308. The value of a number alone decides, not its spelling.
func Canonical(value []byte) ([]byte, error) {
	c := newCanon()
	defer c.free()
	c.reset(value)
	if err := c.document(Selection{}); err != nil {
		return nil, err
	}
	return append([]byte(nil), c.out...), nil
}
