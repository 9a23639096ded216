package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// TicketsFile is the tickets server's whole storage: one JSON object a line.
const TicketsFile = "tickets.jsonl"

// Ticket is one effect.
type Ticket struct {
	ID                string `json:"id"`
	OrderID           string `json:"order_id"`
	Title             string `json:"title"`
	ExternalReference string `json:"external_reference,omitempty"`
}

// ticketBook appends tickets to a file.
type ticketBook struct {
	mu   sync.Mutex
	path string
}

// add gives the ticket the next id and returns once it is on disk.
func (b *ticketBook) add(t Ticket) (Ticket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, err := readTickets(b.path)
	if err != nil {
		return Ticket{}, err
	}
	t.ID = fmt.Sprintf("T-%d", len(all)+1)
	line, err := json.Marshal(t)
	if err != nil {
		return Ticket{}, err
	}
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return Ticket{}, err
	}
	_, err = f.Write(append(line, '\n'))
	return t, errors.Join(err, f.Sync(), f.Close())
}

// ReadTickets reads a tickets server's storage from outside: what it holds is
// what really happened, whoever says what.
func ReadTickets(dir string) ([]Ticket, error) {
	return readTickets(filepath.Join(dir, TicketsFile))
}

func readTickets(path string) ([]Ticket, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Ticket
	for line := range bytes.Lines(b) {
		var t Ticket
		if err := json.Unmarshal(line, &t); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, t)
	}
	return all, nil
}
