package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	idem "github.com/mcp-idem/mcp-idem"
)

// Limits of the notes of one task. A name and a value are counted in bytes.
const (
	MaxNotes = 500
	MaxName  = 200
	MaxValue = 8 << 10
)

// Kinds of notes.
const (
	KindNote     = "note"     // a remark
	KindArtifact = "artifact" // something that the task made: a file, a branch
	KindRef      = "ref"      // the id of something in an outside system
)

// Kinds lists them.
func Kinds() []string { return []string{KindNote, KindArtifact, KindRef} }

// ErrLimit: a note is too long, or there are too many.
var ErrLimit = errors.New("checkpoint: the limit is reached")

// Tasks are the tasks of one tenant. It is safe for concurrent use, also by
// several processes on the same ledger.
type Tasks struct {
	Store  idem.Store
	Tenant string
}

// State is where a task stands.
type State struct {
	Task       string
	Operations []*idem.Record // oldest first; expired ones too, as far as they are kept
	Notes      []idem.Note    // in the order of their first writing
	Now        idem.Instant   // the ledger's, at the last page
}

// Completed are the operations whose effect is there.
func (s *State) Completed() []*idem.Record { return s.in(idem.StateCommitted) }

// Failed are those that had none, and will have none by themselves.
func (s *State) Failed() []*idem.Record { return s.in(idem.StateFailedFinal, idem.StateCompensated) }

// Unsettled are all others: they can still act, or be settled.
func (s *State) Unsettled() []*idem.Record {
	var out []*idem.Record
	for _, r := range s.Operations {
		if !r.State.Final() && !r.Expired {
			out = append(out, r)
		}
	}
	return out
}

func (s *State) in(states ...idem.State) []*idem.Record {
	var out []*idem.Record
	for _, r := range s.Operations {
		if slices.Contains(states, r.State) {
			out = append(out, r)
		}
	}
	return out
}

// Read tells where a task stands. One that nobody knows yet has nothing.
func (t Tasks) Read(ctx context.Context, task string) (*State, error) {
	s := &State{Task: task}
	q := idem.Query{Order: idem.ByTask, Tenant: t.Tenant, Task: task}
	for {
		page, err := t.Store.List(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: task %s: %w", task, err)
		}
		s.Operations, s.Now = append(s.Operations, page.Records...), page.Now
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	ref := idem.TaskRef(t.Tenant, task)
	snap, err := t.Store.Load(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: task %s: %w", task, err)
	}
	if row := snap.Row(ref).Task; row != nil {
		s.Notes = row.Notes
	}
	return s, nil
}

// Note writes a note of a task, in the place of an earlier one of the same kind
// and name. Writing the same again changes nothing.
func (t Tasks) Note(ctx context.Context, task string, n idem.Note) error {
	switch {
	case task == "":
		return errors.New("checkpoint: a note needs a task")
	case !slices.Contains(Kinds(), n.Kind):
		return fmt.Errorf("checkpoint: kind %q: want one of %v", n.Kind, Kinds())
	case n.Name == "":
		return errors.New("checkpoint: a note needs a name")
	case len(n.Name) > MaxName:
		return fmt.Errorf("%w: the name has %d bytes, at most %d are kept", ErrLimit, len(n.Name), MaxName)
	case len(n.Value) > MaxValue:
		return fmt.Errorf("%w: the value has %d bytes, at most %d are kept: note where it is instead", ErrLimit, len(n.Value), MaxValue)
	}
	ref := idem.TaskRef(t.Tenant, task)
	for {
		snap, err := t.Store.Load(ctx, ref)
		if err != nil {
			return fmt.Errorf("checkpoint: task %s: %w", task, err)
		}
		row := snap.Row(ref)
		next, err := with(row.Task, n, snap.Now)
		if err != nil || next == nil {
			return err
		}
		next.Tenant, next.Task = t.Tenant, task
		c := idem.Change{Needs: []idem.Need{{Ref: ref, Version: row.Version}}, Puts: []idem.Row{{Ref: ref, Task: next}}}
		_, _ = rand.Read(c.ID[:]) // never fails
		_, err = t.Store.Commit(ctx, c)
		if errors.As(err, new(*idem.Conflict)) || errors.Is(err, idem.ErrCommitUnknown) {
			continue // somebody else wrote, or it may be there: look again
		}
		if err != nil {
			return fmt.Errorf("checkpoint: task %s: %w", task, err)
		}
		return nil
	}
}

// with is a row with a note in it; nil: it is there already.
func with(row *idem.TaskRow, n idem.Note, now idem.Instant) (*idem.TaskRow, error) {
	n.At = now
	next := &idem.TaskRow{}
	if row != nil {
		next.Notes = slices.Clone(row.Notes)
	}
	i := slices.IndexFunc(next.Notes, func(o idem.Note) bool { return o.Kind == n.Kind && o.Name == n.Name })
	switch {
	case i >= 0 && next.Notes[i].Value == n.Value:
		return nil, nil
	case i >= 0:
		next.Notes[i] = n
	case len(next.Notes) >= MaxNotes:
		return nil, fmt.Errorf("%w: the task has %d notes already", ErrLimit, MaxNotes)
	default:
		next.Notes = append(next.Notes, n)
	}
	return next, nil
}
