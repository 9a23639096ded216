package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Check reads an archive to its end. What is wrong with it is an *Error.
func Check(r io.Reader) (Summary, error) {
	a := NewReader(r)
	for _, err := range a.Rows() {
		if err != nil {
			return Summary{}, err
		}
	}
	return a.summary, nil
}

// Reader reads one archive once. Not safe for concurrent use.
type Reader struct {
	r       *bufio.Reader
	sum     hash.Hash
	line    int
	rows    int
	last    idem.Ref
	summary Summary
}

// NewReader reads from r, which need not be buffered.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 1<<16), sum: sha256.New()}
}

// Rows yields every row, and last, where there is one, an error: an *Error, or
// the one of reading. Whether the file as a whole is what was written is known
// when no error has come.
func (a *Reader) Rows() iter.Seq2[idem.Row, error] {
	return func(yield func(idem.Row, error) bool) {
		err := a.header()
		for err == nil {
			var row idem.Row
			var end bool
			if row, end, err = a.next(); err != nil || end {
				break
			}
			if !yield(row, nil) {
				return
			}
		}
		if err != nil {
			yield(idem.Row{}, err)
		}
	}
}

func (a *Reader) fail(err error) error { return &Error{Line: a.line, Err: err} }

// read returns the next line with its end, valid until the one after it.
func (a *Reader) read() ([]byte, error) {
	a.line++
	var long []byte
	for {
		part, err := a.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, part...); len(long) > maxLine {
				return nil, a.fail(errLong)
			}
			continue
		}
		if long != nil {
			part = append(long, part...)
		}
		if errors.Is(err, io.EOF) {
			return part, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", a.line, err)
		}
		return part, nil
	}
}

func (a *Reader) header() error {
	b, err := a.read()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var h header
	if uncut := len(b) > 0 && b[len(b)-1] == '\n'; !uncut || !bytes.HasPrefix(b, []byte(`{"format":"`+formatName+`"`)) {
		return a.fail(errForeign)
	}
	err = decode(b, &h)
	if h.Version > formatVersion { // before anything else: its lines are its own
		return a.fail(fmt.Errorf("format version %d, this program reads up to %d: use a newer one (%q wrote it)", h.Version, formatVersion, h.Program))
	}
	if err == nil && h.Version != formatVersion {
		err = errEdited
	}
	if err != nil {
		return a.fail(err)
	}
	a.sum.Write(b)
	return nil
}

// next reads a row, or the trailer.
func (a *Reader) next() (row idem.Row, end bool, err error) {
	b, err := a.read()
	switch {
	case errors.Is(err, io.EOF):
		return row, false, a.fail(errCut)
	case err != nil:
		return row, false, err
	case bytes.HasPrefix(b, []byte(`{"rows":`)):
		return row, true, a.end(b)
	}
	if row, err = a.row(b); err != nil {
		return row, false, a.fail(err)
	}
	a.sum.Write(b)
	return row, false, nil
}

func (a *Reader) row(b []byte) (idem.Row, error) {
	var l line
	if err := decode(b, &l); err != nil {
		return idem.Row{}, err
	}
	kind, known := kindOf(l.Kind)
	id, parsed := idem.ParseID(l.ID)
	if !known || !parsed {
		return idem.Row{}, fmt.Errorf("kind %.40q, id %.40q: unknown to this program; use the version that wrote the file", l.Kind, l.ID)
	}
	row, err := codec.OpenWhole(idem.Ref{Kind: kind, ID: id}, l.Row)
	if err != nil {
		return row, fmt.Errorf("%w; export the ledger again", err)
	}
	if row.Version != l.Version {
		return row, errEdited
	}
	if a.rows > 0 && a.last.Compare(row.Ref) >= 0 {
		return row, errOrder
	}
	a.last, a.rows = row.Ref, a.rows+1
	return row, nil
}

// end checks the trailer, and that nothing follows.
func (a *Reader) end(b []byte) error {
	var t trailer
	if err := decode(b, &t); err != nil {
		return a.fail(err)
	}
	open, err := encode(trailer{Rows: t.Rows, Clock: t.Clock})
	if err != nil {
		return err
	}
	a.sum.Write(open)
	if t.Rows != a.rows || t.SHA256 != hex.EncodeToString(a.sum.Sum(nil)) {
		return a.fail(errSum)
	}
	clock, err := time.Parse(time.RFC3339Nano, t.Clock)
	if err != nil {
		return a.fail(err)
	}
	a.summary = Summary{Rows: t.Rows, Clock: idem.InstantOf(clock), SHA256: t.SHA256}
	if b, err := a.read(); len(b) > 0 {
		return a.fail(errFollowed)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
