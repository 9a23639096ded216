package main

import (
	"errors"
	"os"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

// openLedger opens the ledger for a command: the file itself, or through the
// process that holds it. held says that a gateway runs on it.
func (p *program) openLedger(path string) (st idem.Store, held bool, err error) {
	s, err := boltstore.Open(boltstore.Config{Path: path, NewLedger: p.flags.newLedger})
	if err == nil {
		return s, false, nil
	}
	if !errors.Is(err, boltstore.ErrLocked) {
		return nil, false, err
	}
	st, derr := boltstore.Dial(path)
	if derr != nil {
		return nil, true, errors.Join(err, derr)
	}
	return st, true, nil
}

// noLedger reports whether there is nothing to open, and nothing ever was: a
// command that only reads must not make a ledger.
func noLedger(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist) && !boltstore.Existed(path)
}
