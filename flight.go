package idem

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/crash"
)

// flight is an attempt of this process that is under way.
type flight struct {
	g       *Guard
	op      ID
	attempt uint32
	rules   Rules
	token   Token
	claimed *Record // as committed with the claim
	site    Site
	atomic  bool
	ctx     context.Context // of the attempt
	stop    func()          // ends ctx

	freed   chan struct{} // closed when it is recorded that nobody waits
	freeing sync.Once
	done    chan struct{} // closed when the outcome is recorded, or cannot be for now

	mu      sync.Mutex
	leased  Instant // end of the lease, as far as it is known to be recorded
	ended   bool    // outcome is set
	lost    bool    // the outcome could not be recorded (yet)
	outcome Outcome

	recorded *Record // with the outcome; set before done is closed
}

func (g *Guard) flight(op ID, attempt uint32) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[op]; f != nil && f.attempt == attempt {
		return f
	}
	return nil
}

func (g *Guard) launch(op ID, rec *Record, rules Rules, e Effect, site Site) *flight {
	f := &flight{g: g, op: op, attempt: rec.Last, rules: rules, token: rec.Lease.Token, claimed: rec, site: site, atomic: e.Atomic != nil,
		freed: make(chan struct{}), done: make(chan struct{}), leased: rec.Lease.End}
	f.ctx, f.stop = context.WithCancel(g.ctx)
	g.mu.Lock()
	g.flights[op] = f
	g.mu.Unlock()
	g.wg.Add(1)
	go f.fly(e)
	return f
}

// fly makes the attempt and records what came of it.
func (f *flight) fly(e Effect) {
	defer f.g.wg.Done()
	defer f.stop()
	beat := time.AfterFunc(f.rules.Lease/3, f.heartbeat)
	var out Outcome
	if f.trusted() {
		var timeout *time.Timer
		if f.rules.Timeout > 0 {
			timeout = time.AfterFunc(f.rules.Timeout, f.free)
		}
		out = f.perform(e)
		if timeout != nil {
			timeout.Stop()
		}
	} else {
		out = Outcome{Class: ClassNotSent, Text: "the claim's lease ran out before the dispatch"}
	}
	crash.At("answered")
	f.mu.Lock()
	f.outcome, f.ended = out, true
	f.mu.Unlock()
	f.record()
	beat.Stop()
	f.g.mu.Lock()
	if f.g.flights[f.op] == f {
		delete(f.g.flights, f.op)
	}
	f.g.mu.Unlock()
}

// trusted reports whether the claim surely still holds: a margin before its
// lease's end it is not trusted any more.
func (f *flight) trusted() bool {
	now, err := f.g.cfg.Store.Clock(f.g.ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	return err == nil && now < f.leased.Add(-f.rules.Lease/5)
}

func (f *flight) perform(e Effect) (out Outcome) {
	defer func() {
		if p := recover(); p != nil {
			out = Outcome{Class: ClassAmbiguous, Ended: EndByBytes, Text: fmt.Sprintf("the tool panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	if f.atomic {
		return f.transact(e)
	}
	return e.Run(f.ctx, f.dispatch(f.claimed))
}

func (f *flight) dispatch(r *Record) Dispatch {
	return Dispatch{Key: f.op.String(), Attempt: f.attempt, Site: f.site, Record: r, Free: f.free}
}

// heartbeat extends the lease while the attempt is under way.
func (f *flight) heartbeat() {
	f.mu.Lock()
	ended := f.ended
	f.mu.Unlock()
	if ended {
		return
	}
	ctx, cancel := context.WithTimeout(f.g.ctx, f.rules.Lease/3)
	defer cancel()
	if now, err := f.g.cfg.Store.Clock(ctx); err == nil {
		end := now.Add(f.rules.Lease)
		c := Change{Needs: nil, Marks: []Mark{{Ref: opRef(f.op), LeaseEnd: end, Token: f.token}}}
		f.g.cfg.Random(c.ID[:])
		if _, err := f.g.cfg.Store.Commit(ctx, c); err == nil {
			f.mu.Lock()
			f.leased = max(f.leased, end)
			f.mu.Unlock()
		}
	}
	if f.g.ctx.Err() == nil {
		time.AfterFunc(f.rules.Lease/3, f.heartbeat)
	}
}

// free makes the outcome unknown and frees its asker; the attempt goes on. One
// that was fenced by that need not.
func (f *flight) free() {
	ctx, cancel := context.WithTimeout(f.g.ctx, recordTimeout)
	defer cancel()
	rec, err := f.g.change(ctx, f.op, nil, func(r *Record, now Instant) (Event, []Need) {
		if r.State != StateStarted || r.Last != f.attempt {
			return nil, nil
		}
		return TimedOut{When: When{now}, Terms: f.g.terms(r, f.rules, 0), Attempt: f.attempt}, nil
	})
	if err != nil { // the caller is freed all the same
		f.g.observe(Observation{What: "unrecorded", Op: f.op, Err: err})
	} else if a := rec.attempt(f.attempt); a != nil && a.Closed == ProofFence {
		f.stop()
	}
	crash.At("timeout-recorded")
	f.freeing.Do(func() { close(f.freed) })
}

// record writes the outcome down, on a context that nobody's leaving reaches.
// What cannot be written stays in memory and is tried until the guard closes.
func (f *flight) record() {
	pause := 50 * time.Millisecond
	for first := true; ; first = false {
		err := f.write(first)
		if err == nil {
			break
		}
		f.g.observe(Observation{What: "unrecorded", Op: f.op, Err: err})
		f.mu.Lock()
		if !f.lost {
			f.lost = true
			close(f.done)
		}
		f.mu.Unlock()
		if !sleep(f.g.ctx, pause) {
			return
		}
		pause = min(2*pause, 2*time.Second)
	}
	crash.At("recorded")
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lost {
		close(f.done)
	}
	f.lost = false
}

func (f *flight) write(first bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.g.ctx), recordTimeout)
	defer cancel()
	if f.recorded != nil { // with the effect
		return nil
	}
	var known *Record
	if first {
		known = f.claimed
	}
	rec, err := f.g.change(ctx, f.op, known, func(r *Record, now Instant) (Event, []Need) {
		if a := r.attempt(f.attempt); f.atomic && (a == nil || !r.current(a)) { // it was fenced, or committed after all
			return nil, nil
		}
		return Report{When: When{now}, Terms: f.g.terms(r, f.rules, f.outcome.RetryAfter), Attempt: f.attempt, Outcome: f.outcome,
			Superseded: r.State != StateStarted && f.g.superseded(ctx, r)}, nil
	})
	if err == nil {
		f.mu.Lock()
		f.recorded = rec
		f.mu.Unlock()
	}
	var unfit *TransitionError
	if errors.Is(err, ErrLate) || errors.Is(err, ErrNoOperation) || errors.As(err, &unfit) {
		f.g.observe(Observation{What: "late_report", Op: f.op, Err: err})
		return nil
	}
	return err
}

// superseded reports whether a business key has moved on to a later generation.
func (g *Guard) superseded(ctx context.Context, r *Record) bool {
	if r.Source != SourceBusiness {
		return false
	}
	ref := Ref{KindKey, keyID(r.Scope, r.Incarnation+"/"+r.Key)}
	s, err := g.cfg.Store.Load(ctx, ref)
	row := s.Row(ref).Key
	return err == nil && row != nil && row.Generation > r.Generation
}

// unrecorded is the answer while the effect's outcome waits to be written down.
// An atomic one is worth the wait, until that is over.
func (f *flight) unrecorded(over bool) (Answer, bool) {
	f.mu.Lock()
	lost := f.lost
	f.mu.Unlock()
	if !lost || (f.atomic && !over) {
		return Answer{}, false
	}
	return f.answer()
}

// answer is what the attempt itself brought, if that says something.
func (f *flight) answer() (Answer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := f.outcome.Class == ClassSuccess || (f.outcome.Result != nil && f.outcome.Class != ClassAmbiguous)
	switch {
	case f.atomic && (f.recorded == nil || !said):
		return f.unsettled(), true
	case !f.ended || !said:
		return Answer{}, false
	}
	a := Answer{Record: f.claimed, Op: f.op, Result: f.outcome.Result, Kind: f.outcome.Kind, NotRecorded: f.recorded == nil}
	if f.recorded != nil {
		a.Record = f.recorded
	}
	return a, true
}

// result is the attempt's own, however large; nil while it has none.
func (f *flight) result() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outcome.Result
}

// await is the starter's wait for its own attempt: as long as its client waits.
func (w *asker) await(ctx context.Context, f *flight, v verdict) (Answer, bool) {
	w.mine, w.bound = f, f.op
	began := time.Now()
	select {
	case <-f.done:
		if a, ok := f.unrecorded(false); ok {
			return a, true
		}
		if f.outcome.Class == ClassInterim {
			return Answer{Record: f.recorded, Op: f.op, Result: f.outcome.Result, Kind: f.outcome.Kind}, true
		}
		if r := f.recorded; r != nil && r.State == StateCommitted { // what it would find in the ledger
			v.record = r
			return w.result(v), true
		}
	case <-f.freed:
	case <-ctx.Done():
		v.record = f.claimed
		return w.gone(ctx, v), true
	}
	w.limit = w.limit.Add(time.Since(began)) // its own attempt is no wait
	return Answer{}, false
}
