package core

import (
	"errors"
	"fmt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Incoming checks the rows of an import, one after the other. The zero value is
// ready to use.
type Incoming struct {
	N    int // rows that were good
	last idem.Ref
}

// Next seals a row at its own version. The error of one that cannot be stored
// names its place in the import.
func (in *Incoming) Next(r *idem.Row) ([]byte, error) {
	b, err := in.seal(r)
	if err != nil {
		return nil, fmt.Errorf("import: the row after the first %d: %w", in.N, err)
	}
	in.N, in.last = in.N+1, r.Ref
	return b, nil
}

func (in *Incoming) seal(r *idem.Row) ([]byte, error) {
	body, err := codec.Body(r)
	switch {
	case err != nil:
		return nil, err
	case r.Version == 0:
		return nil, fmt.Errorf("row %d/%s has no version", r.Ref.Kind, r.Ref.ID)
	case in.N > 0 && in.last.Compare(r.Ref) >= 0:
		return nil, fmt.Errorf("row %d/%s is not in order, or comes twice", r.Ref.Kind, r.Ref.ID)
	}
	return codec.Seal(r.Ref, r.Version, body), nil
}

// NotEmpty is the refusal of an import into a ledger that has rows.
func NotEmpty(place string) error {
	return fmt.Errorf("%s: %w: an import goes into an empty ledger only, so that no record is overwritten", place, errNotEmpty)
}

var errNotEmpty = errors.New("the ledger is not empty")
