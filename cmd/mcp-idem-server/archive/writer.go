package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Summary is what the trailer says.
type Summary struct {
	Rows   int
	Clock  idem.Instant // the ledger's, at the snapshot
	SHA256 string       // hexadecimal
}

// Writer writes one archive. Not safe for concurrent use.
type Writer struct {
	w    *bufio.Writer
	sum  hash.Hash
	rows int
	last idem.Ref
}

// NewWriter writes the header. program is the version of the program that
// writes.
func NewWriter(w io.Writer, program string) (*Writer, error) {
	a := &Writer{w: bufio.NewWriterSize(w, 1<<16), sum: sha256.New()}
	return a, a.line(header{Format: formatName, Version: formatVersion, Program: program})
}

// Row writes a row. Rows come by kind and id, each once.
func (a *Writer) Row(r *idem.Row) error {
	if a.rows > 0 && a.last.Compare(r.Ref) >= 0 {
		return fmt.Errorf("row %d/%s: %w", r.Ref.Kind, r.Ref.ID, errOrder)
	}
	body, err := codec.Body(r)
	if err != nil {
		return err
	}
	a.last, a.rows = r.Ref, a.rows+1
	return a.line(line{Kind: kinds[r.Ref.Kind], ID: r.Ref.ID.String(), Version: r.Version, Row: codec.Seal(r.Ref, r.Version, body)})
}

// Close writes the trailer and what is buffered. It does not close the
// underlying writer.
func (a *Writer) Close(clock idem.Instant) (Summary, error) {
	t := trailer{Rows: a.rows, Clock: clock.Time().Format(time.RFC3339Nano)}
	open, err := encode(t)
	if err != nil {
		return Summary{}, err
	}
	a.sum.Write(open)
	t.SHA256 = hex.EncodeToString(a.sum.Sum(nil))
	if err := a.line(t); err != nil {
		return Summary{}, err
	}
	return Summary{Rows: t.Rows, Clock: clock, SHA256: t.SHA256}, a.w.Flush()
}

func (a *Writer) line(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	if len(b) > maxLine {
		return errLong
	}
	a.sum.Write(b)
	_, err = a.w.Write(b)
	return err
}
