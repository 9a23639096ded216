// Package relay stands between a gateway and an unmodified stdio server. It
// passes every byte on as it came, save that it can swallow a request before the
// server sees it, or hold an answer back after the server has acted. That makes
// the moment between an effect and its record long enough to kill somebody in.
// A directory of small files steers it, since a test and the relay share no
// other channel that survives the gateway's death.
package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The kinds of event.
const (
	Started   = "started"   // the server runs
	Forwarded = "forwarded" // a tools/call went on to the server
	Dropped   = "dropped"   // a tools/call was swallowed
	Held      = "held"      // the server answered a tools/call; the answer waits here
	Returned  = "returned"  // an answer to a tools/call went back
)

// Event is one thing that happened, in order.
type Event struct {
	What   string `json:"what"`
	Tool   string `json:"tool,omitempty"`
	Pid    int    `json:"pid"`              // the relay's
	Parent int    `json:"parent,omitempty"` // started: who started the relay
	Server int    `json:"server,omitempty"` // started: the server's process id
	Line   string `json:"line,omitempty"`   // forwarded: the request as it came
	Answer string `json:"answer,omitempty"` // held: the answer as it came
	Nobody bool   `json:"nobody,omitempty"` // returned: nobody was left to read it
}

// Control steers the relays that were started on one directory.
type Control struct{ Dir string }

// Hold holds back answers to calls of tool from now on; "" lets later ones pass.
func (c Control) Hold(tool string) error { return c.set("hold", tool) }

// Drop swallows calls of tool from now on; "" lets later ones pass.
func (c Control) Drop(tool string) error { return c.set("drop", tool) }

// Release lets answers go that are held at present.
func (c Control) Release() error { return c.set("release", "now") }

func (c Control) set(name, value string) error {
	path := filepath.Join(c.Dir, name)
	if value == "" {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.WriteFile(path, []byte(value), 0o600)
}

func (c Control) get(name string) string {
	b, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		return "" // not set
	}
	return string(b)
}

// Events returns what has happened so far.
func (c Control) Events() ([]Event, error) {
	b, err := os.ReadFile(filepath.Join(c.Dir, "events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Event
	for line := range bytes.Lines(b) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("relay: event %q: %w", line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// Count counts events of one kind for one tool ("" for any).
func (c Control) Count(what, tool string) (int, error) {
	all, err := c.Events()
	n := 0
	for _, e := range all {
		if e.What == what && (tool == "" || e.Tool == tool) {
			n++
		}
	}
	return n, err
}

// Wait waits until the n-th event of a kind has happened and returns it.
func (c Control) Wait(ctx context.Context, what, tool string, n int) (Event, error) {
	for {
		all, err := c.Events()
		if err != nil {
			return Event{}, err
		}
		seen := 0
		for _, e := range all {
			if e.What == what && (tool == "" || e.Tool == tool) {
				if seen++; seen == n {
					return e, nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return Event{}, fmt.Errorf("relay: %s %s number %d: only %d so far: %w", what, tool, n, seen, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// report appends an event. One write of one line: relays of one directory may
// overlap in time.
func (c Control) report(e Event) error {
	e.Pid = os.Getpid()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "events"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
