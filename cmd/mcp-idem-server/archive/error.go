package archive

import (
	"errors"
	"fmt"
)

// Error is what is wrong with a file: it is not, or no longer, what Writer wrote.
type Error struct {
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

var (
	errEdited   = errors.New("it was changed after the export; export the ledger again")
	errCut      = errors.New("the file ends before its last line; export the ledger again, or copy the file again")
	errForeign  = errors.New("this is not an export of a ledger; name a file that the export command wrote")
	errFollowed = errors.New("something follows after the end of the export; export the ledger again, into a file of its own")
	errOrder    = errors.New("the row is not in order, or comes twice; export the ledger again")
	errSum      = errors.New("lines before this one were changed, removed or added after the export; export the ledger again")
	errLong     = fmt.Errorf("the line is longer than %d MiB; name a file that the export command wrote", maxLine>>20)
)
