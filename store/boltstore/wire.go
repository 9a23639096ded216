package boltstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// The protocol of the socket. Every message is a frame: its length as 4
// big-endian bytes, then CBOR. The client opens with a hello, the holder answers
// with a welcome, and if that carries no error, requests and responses follow in
// any order, matched by id. A cancel request, which only a watch knows, names the
// id of the request it ends and has no response of its own.
//
// The version is of everything that crosses: a client and a holder of different
// versions refuse each other with a text that says so.
const (
	wireMagic   = "mcp-idem ledger"
	wireVersion = 2

	frameLimit = 16 << 20
	helloLimit = 1 << 10
)

type hello struct {
	Magic   string `cbor:"1,keyasint"`
	Version uint16 `cbor:"2,keyasint"`
}

type welcome struct {
	Version uint16 `cbor:"1,keyasint"`
	Error   string `cbor:"2,keyasint,omitempty"`
	// Now is the ledger's clock.
	Now idem.Instant `cbor:"3,keyasint,omitempty"`
}

type method uint8

const (
	methodLoad method = iota + 1
	methodCommit
	methodList
	methodWatch
	methodClock
	methodCancel
)

type call struct {
	ID     uint64          `cbor:"1,keyasint"`
	Method method          `cbor:"2,keyasint"`
	Body   cbor.RawMessage `cbor:"3,keyasint,omitempty"`
	// Until is when the client stops waiting, on the ledger's clock: what a holder
	// that was stopped finds later than that is not done. 0: it waits on.
	Until idem.Instant `cbor:"4,keyasint,omitempty"`
}

type response struct {
	ID    uint64          `cbor:"1,keyasint"`
	Error *wireError      `cbor:"2,keyasint,omitempty"`
	Body  cbor.RawMessage `cbor:"3,keyasint,omitempty"`
}

type watchBody struct {
	ID    idem.ID      `cbor:"1,keyasint"`
	After idem.Version `cbor:"2,keyasint,omitempty"`
}

// pageBody is a Page and the versions that its records do not encode.
type pageBody struct {
	Page     idem.Page      `cbor:"1,keyasint"`
	Versions []idem.Version `cbor:"2,keyasint,omitempty"`
}

// versions gives the records of a snapshot the versions of their rows, which
// they do not encode.
func versions(s idem.Snapshot) {
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Operation != nil {
			r.Operation.Version = r.Version
		}
	}
}

func pageOut(p idem.Page) pageBody {
	b := pageBody{Page: p}
	for _, r := range p.Records {
		b.Versions = append(b.Versions, r.Version)
	}
	return b
}

func (b *pageBody) in() (idem.Page, error) {
	if len(b.Versions) != len(b.Page.Records) {
		return idem.Page{}, fmt.Errorf("%w: %d versions of %d records", codec.ErrMalformed, len(b.Versions), len(b.Page.Records))
	}
	for i, r := range b.Page.Records {
		r.Version = b.Versions[i]
	}
	return b.Page, nil
}

// wireError carries an error across: what can be matched, and the text.
type wireError struct {
	Code     string         `cbor:"1,keyasint"`
	Text     string         `cbor:"2,keyasint"`
	Conflict *idem.Conflict `cbor:"3,keyasint,omitempty"`
}

const codeConflict = "conflict"

// wireCodes are the sentinels that cross, the most telling first.
var wireCodes = []struct {
	code string
	err  error
}{
	{"unknown", idem.ErrCommitUnknown}, {"closed", idem.ErrClosed}, {"damaged", ErrDamaged}, {"full", ErrFull},
	{"broken", ErrBroken}, {"read-only", ErrReadOnly}, {"late", errLate},
}

func errorOut(err error) *wireError {
	if err == nil {
		return nil
	}
	w := &wireError{Text: err.Error()}
	if c, ok := errors.AsType[*idem.Conflict](err); ok {
		w.Code, w.Conflict = codeConflict, c
		return w
	}
	for _, c := range wireCodes {
		if errors.Is(err, c.err) {
			w.Code = c.code
			return w
		}
	}
	return w
}

func (w *wireError) in() error {
	switch {
	case w == nil:
		return nil
	case w.Code == codeConflict && w.Conflict != nil:
		return w.Conflict
	}
	for _, c := range wireCodes {
		if c.code == w.Code {
			return &remoteError{text: w.Text, kind: c.err}
		}
	}
	return &remoteError{text: w.Text}
}

// remoteError is the holder's error: its text already tells the sentinel's.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// encodeFrame returns a frame with its length.
func encodeFrame(v any) ([]byte, error) {
	b, err := codec.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > frameLimit {
		return nil, fmt.Errorf("boltstore: a message of %d bytes is over the limit of %d", len(b), frameLimit)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...), nil
}

func readFrame(r *bufio.Reader, limit uint32, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > limit {
		return fmt.Errorf("boltstore: a frame of %d bytes is over the limit of %d", n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return codec.Unmarshal(b, v)
}
