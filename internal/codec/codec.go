// Package codec is the encoding of the ledger's rows and of what crosses its
// socket.
//
// The encoding is CBOR (RFC 8949) with core deterministic rules: the same value
// has one encoding. Struct fields have numbers, which are never used again.
// Fields that a reader does not know are skipped, so that an older program can
// read what a newer one of the same format wrote; names that occur twice are
// refused.
//
// A stored row is
//
//	format (1 byte) | version (8 bytes, big-endian) | CRC-32C (4 bytes) | CBOR
//
// The checksum covers kind, id, version and body, so that a row that was torn,
// zeroed or put in another's place is an error and never a wrong answer.
// All functions are safe for concurrent use; none keeps or changes its input.
package codec

import (
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// ErrMalformed is wrapped by every error of decoding.
var ErrMalformed = errors.New("malformed encoding")

// The modes are built once from constants; the options are known to be valid.
var (
	encoder = must(encOptions().EncMode())
	decoder = must(decOptions().DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic("codec: " + err.Error())
	}
	return v
}

func encOptions() cbor.EncOptions { return cbor.CoreDetEncOptions() }

func decOptions() cbor.DecOptions {
	return cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		UTF8:             cbor.UTF8DecodeInvalid, // error texts come from outside and are kept as they came
		MaxNestedLevels:  32,
		MaxArrayElements: 1 << 24,
		MaxMapPairs:      1 << 16,
	}
}

// Marshal returns the one encoding of v.
func Marshal(v any) ([]byte, error) {
	b, err := encoder.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal decodes exactly one value that fills b.
func Unmarshal(b []byte, v any) error {
	if err := decoder.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %T: %w: %w", v, ErrMalformed, err)
	}
	return nil
}
