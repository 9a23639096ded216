package torture

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"sync/atomic"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// What is the kind of an event.
const (
	called   = "called"   // a commit begins
	returned = "returned" // and has ended
	loaded   = "loaded"
	listed   = "listed"
	answered = "answered"
)

// How a commit ended.
const (
	applied    = "applied"
	conflicted = "conflicted"
	doubtful   = "doubtful" // ErrCommitUnknown, or the host did not live to hear
	refused    = "refused"  // nothing was changed
)

// event is one line of a host's history.
type event struct {
	What  string       `json:"what"`
	N     int64        `json:"n"` // of the call, in its process
	At    moment       `json:"at"`
	Until moment       `json:"until,omitempty"` // loaded
	Rows  []row        `json:"rows,omitempty"`
	How   string       `json:"how,omitempty"`
	Stamp idem.Instant `json:"stamp,omitempty"`
	Ref   string       `json:"ref,omitempty"`  // conflicted: which row
	Have  uint64       `json:"have,omitempty"` // conflicted
	Why   string       `json:"why,omitempty"`  // conflicted, refused

	Op     string `json:"op,omitempty"`
	Result string `json:"result,omitempty"`
}

// row is what a commit wants of a row or does to it, or what was read.
type row struct {
	Ref     string         `json:"ref"`
	Kind    idem.Kind      `json:"kind"`
	Version uint64         `json:"version,omitempty"` // read; 0: absent
	Need    *uint64        `json:"need,omitempty"`
	Lease   idem.LeaseNeed `json:"lease,omitempty"`
	Put     bool           `json:"put,omitempty"`
	Drop    bool           `json:"drop,omitempty"`
	Mark    bool           `json:"mark,omitempty"`
	Digest  string         `json:"digest,omitempty"` // put or read, but for what marks change
	State   idem.State     `json:"state,omitempty"`
	Token   string         `json:"token,omitempty"`
	Fence   uint64         `json:"fence,omitempty"`
	End     idem.Instant   `json:"end,omitempty"` // of the lease; also of a mark
}

// recorder writes a history that survives its process: each event is one write,
// and that of a call comes before the call.
type recorder struct {
	file *os.File
	n    atomic.Int64
}

func newRecorder(path string) (*recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &recorder{file: f}, err
}

func (r *recorder) write(e event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // a history with holes is worth nothing
	}
}

func (r *recorder) answer(a *idem.Answer) {
	if a.Err == nil && a.Op != (idem.ID{}) {
		r.write(event{What: answered, N: r.n.Add(1), At: now(), Op: a.Op.String(), Result: string(a.Result)})
	}
}

// recorded is a store whose calls are written down.
type recorded struct {
	idem.Store
	rec *recorder
}

func (s *recorded) Commit(ctx context.Context, c idem.Change) (idem.Stamp, error) {
	n := s.rec.called(&c)
	stamp, err := s.Store.Commit(ctx, c)
	s.rec.returned(n, stamp, err)
	return stamp, err
}

// called writes down that a commit begins, and returns its number.
func (r *recorder) called(c *idem.Change) int64 {
	e := event{What: called, N: r.n.Add(1), Rows: wanted(c), At: now()}
	r.write(e)
	return e.N
}

// returned writes down how it has ended.
func (r *recorder) returned(n int64, stamp idem.Stamp, err error) {
	e := event{What: returned, N: n, At: now(), Stamp: stamp.Time}
	var conflict *idem.Conflict
	switch {
	case err == nil:
		e.How = applied
	case errors.Is(err, idem.ErrCommitUnknown):
		e.How, e.Why = doubtful, err.Error()
	case errors.As(err, &conflict):
		e.How, e.Ref, e.Have, e.Why = conflicted, name(conflict.Ref), uint64(conflict.Have), conflict.Why
	default:
		e.How, e.Why = refused, err.Error()
	}
	r.write(e)
}

func (s *recorded) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	e := event{What: loaded, N: s.rec.n.Add(1), At: now()}
	snap, err := s.Store.Load(ctx, refs...)
	if err != nil {
		return snap, err
	}
	e.Until, e.Stamp = now(), snap.Now
	for _, ref := range refs {
		e.Rows = append(e.Rows, read(ref, snap.Row(ref)))
	}
	s.rec.write(e)
	return snap, nil
}

func (s *recorded) List(ctx context.Context, q idem.Query) (idem.Page, error) {
	e := event{What: listed, N: s.rec.n.Add(1), At: now()}
	page, err := s.Store.List(ctx, q)
	for _, r := range page.Records {
		ref := idem.Ref{Kind: idem.KindOperation, ID: r.Op}
		e.Rows = append(e.Rows, read(ref, idem.Row{Ref: ref, Version: r.Version, Operation: r}))
	}
	e.Until = now()
	s.rec.write(e)
	return page, err
}

func name(ref idem.Ref) string { return string('0'+rune(ref.Kind)) + "/" + ref.ID.String() }

// wanted is a commit's part of each row.
func wanted(c *idem.Change) []row {
	var rows []row
	at := map[idem.Ref]int{}
	of := func(ref idem.Ref) *row {
		i, ok := at[ref]
		if !ok {
			i = len(rows)
			at[ref] = i
			rows = append(rows, row{Ref: name(ref), Kind: ref.Kind})
		}
		return &rows[i]
	}
	for _, n := range c.Needs {
		r, v := of(n.Ref), uint64(n.Version)
		r.Need, r.Lease = &v, n.Lease
	}
	for i := range c.Puts {
		r := of(c.Puts[i].Ref)
		r.Put = true
		r.content(&c.Puts[i])
	}
	for _, ref := range c.Drops {
		of(ref).Drop = true
	}
	for _, m := range c.Marks {
		r := of(m.Ref)
		r.Mark = true
		switch {
		case m.LeaseEnd != 0:
			r.End, r.Token = m.LeaseEnd, hex.EncodeToString(m.Token[:])
		case m.Alias != nil && !r.Put:
			r.content(&idem.Row{Ref: m.Ref, Alias: m.Alias})
		}
	}
	return rows
}

func read(ref idem.Ref, r idem.Row) row {
	out := row{Ref: name(ref), Kind: ref.Kind, Version: uint64(r.Version)}
	if r.Version > 0 {
		out.content(&r)
	}
	return out
}

// content notes what a row holds. Marks change a slot, a delivery and the end of
// a lease; these are left out of the digest.
func (r *row) content(from *idem.Row) {
	bare := *from
	switch {
	case from.Operation != nil:
		rec := *from.Operation
		r.State, r.Token, r.Fence, r.End = rec.State, hex.EncodeToString(rec.Lease.Token[:]), rec.Lease.Fence, rec.Lease.End
		rec.Lease.End = 0
		bare.Operation = &rec
	case from.Slot != nil, from.Delivered != nil:
		return
	}
	body, err := codec.Body(&bare)
	if err != nil {
		panic(err) // the guard would not get it committed either
	}
	sum := sha256.Sum256(body)
	r.Digest = hex.EncodeToString(sum[:8])
}
