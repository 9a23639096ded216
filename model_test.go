package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// model drives guards, which crash and stall, at random against one ledger and
// one world. It knows what a person granted.
type model struct {
	*house
	atomic  bool // effects commit with their outcome
	rnd     *rand.Rand
	mu      sync.Mutex
	guards  []*idem.Guard
	ways    []*process
	pids    []int
	pending int // dispatches whose effect may still come
	effects map[string]int
	granted map[idem.ID]int
	ops     map[idem.ID]string
	asks    sync.WaitGroup
}

func (m *model) chance(percent int) bool { return m.n(100) < percent }

func (m *model) n(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rnd.IntN(n)
}

func (m *model) between(a, b time.Duration) time.Duration { return a + time.Duration(m.n(int(b-a))) }

// act is an attempt: it applies within 2 s of its dispatch or never, also when
// the process that sent it has died, and answers when it likes.
func (m *model) act(d idem.Dispatch) idem.Outcome {
	switch m.n(12) {
	case 0:
		return idem.Outcome{Class: idem.ClassNotSent}
	case 1:
		return idem.Outcome{Class: idem.ClassThrottled}
	case 2:
		return idem.Outcome{Class: idem.ClassRejected}
	}
	applies, later := m.chance(60), m.chance(15)
	m.mu.Lock()
	m.pending++
	m.mu.Unlock()
	effect := func() string {
		time.Sleep(m.between(0, 2*time.Second))
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pending--
		if !applies {
			return ""
		}
		if m.effects[d.Key]++; m.rules.Resend {
			m.effects[d.Key] = 1 // its key is enforced
		}
		return fmt.Sprintf("%s-%d", d.Key[:4], m.effects[d.Key])
	}
	if later { // the connection breaks first; nobody knows the end
		go effect()
		return idem.Outcome{Class: idem.ClassAmbiguous}
	}
	id := effect()
	if m.chance(30) {
		time.Sleep(m.between(0, 90*time.Second))
	}
	switch {
	case m.chance(25):
		return idem.Outcome{Class: idem.ClassAmbiguous, Ended: idem.EndByGroup}
	case !applies || m.chance(5):
		return idem.Outcome{Class: idem.ClassReported, Result: []byte("isError"), Kind: idem.ResultValue}
	}
	return answered(id)
}

func (m *model) find(l idem.Lookup) (f idem.Finding, err error) {
	if m.chance(20) {
		return f, errDown
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.effects[l.Key] {
		f.IDs = append(f.IDs, fmt.Sprintf("%s-%d", l.Key[:4], i+1))
	}
	return f, nil
}

// book is an attempt in the ledger's own transaction. It need not hear that it
// was given up.
func (m *model) book(ctx context.Context, d idem.Dispatch) (idem.Outcome, error) {
	if m.chance(80) {
		time.Sleep(m.between(0, 15*time.Second))
	}
	switch m.n(14) {
	case 0:
		return idem.Outcome{}, errDown
	case 1:
		return idem.Outcome{Class: idem.ClassThrottled}, errDown
	case 2:
		return idem.Outcome{Class: idem.ClassAmbiguous}, nil
	case 3:
		panic("model")
	case 4, 5:
		if ctx.Err() != nil {
			return idem.Outcome{}, ctx.Err()
		}
	}
	return books(ctx, d)
}

// doubt leaves it open at times whether an effect was committed.
func (m *model) doubt(c idem.Change, commit func() (idem.Stamp, error)) (idem.Stamp, error, bool) {
	if !carries(c) || !m.chance(20) {
		return idem.Stamp{}, nil, false
	}
	if m.chance(50) {
		_, _ = commit()
	}
	return idem.Stamp{}, idem.ErrCommitUnknown, true
}

// start is a new process with a recoverer.
func (m *model) start(i int) {
	m.guards[i] = m.guard()
	m.ways[i], m.pids[i] = m.last, m.pid
	if m.atomic {
		m.last.judge = m.doubt
	}
	m.recovers(m.guards[i], "tickets")
}

func (m *model) crash(i int) {
	m.procs.kill(m.pids[i])
	close(m.ways[i].dead)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.guards[i].Close(gone)
	m.start(i)
}

func (m *model) askOne() {
	i, s := m.n(len(m.guards)), fmt.Sprintf("s%d", m.n(4))
	g, e := m.guards[i], m.effect()
	if m.atomic {
		e = m.atomicallyIn(m.ways[i], m.book)
	}
	patience := m.between(time.Millisecond, 20*time.Second)
	m.asks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		a := g.Do(ctx, step(s), e)
		if a.Op != (idem.ID{}) {
			m.mu.Lock()
			m.ops[a.Op] = s
			m.mu.Unlock()
		}
	})
}

// person decides truthfully, when nothing can happen any more, or grants.
func (m *model) person() {
	for _, r := range m.list(idem.Query{Order: idem.ByState, State: idem.StateNeedsReview}) {
		m.mu.Lock()
		quiet, applied := m.pending == 0, m.effects[r.Op.String()] > 0
		m.mu.Unlock()
		verb := idem.VerbNotApplied
		switch {
		case m.chance(50):
			verb = idem.VerbGrantRetry
		case !quiet:
			continue
		case applied:
			verb = idem.VerbCommitted
		}
		_, err := m.operator().Decide(context.Background(), idem.Command{Op: r.Op, Verb: verb, Reason: "model", Saw: r.Version})
		if err == nil && verb == idem.VerbGrantRetry {
			m.granted[r.Op]++
		} else if err != nil && !errors.Is(err, idem.ErrStale) && !errors.As(err, new(*idem.TransitionError)) {
			m.t.Errorf("%s: %v", verb, err)
		}
	}
}

func (m *model) live() {
	for range 60 {
		switch n := m.n(100); {
		case n < 60:
			m.askOne()
		case n < 70:
			m.crash(m.n(len(m.guards)))
		case n < 78: // a stall: nothing reaches the ledger
			p := m.ways[m.n(len(m.ways))]
			p.fail(errDisk)
			time.AfterFunc(m.between(0, 80*time.Second), func() { p.fail(nil) })
		case n < 82:
			m.person()
		case n < 84:
			time.Sleep(m.between(0, 5*time.Minute))
		default:
			time.Sleep(m.between(0, 15*time.Second))
		}
		time.Sleep(m.between(0, time.Second))
	}
}

// rest lets everything come to an end, and judges.
func (m *model) rest() {
	m.asks.Wait()
	time.Sleep(6 * time.Minute)
	for _, r := range m.list(idem.Query{}) {
		n := m.effects[r.Op.String()]
		if m.atomic {
			n = m.bookings(r.Op)
			if r.State == idem.StateNeedsReview || r.State == idem.StateUnknown || (n == 1) != (r.State == idem.StateCommitted) {
				m.t.Errorf("%s: %d effects, and the record does not know: %s", m.ops[r.Op], n, show(r))
			}
		}
		if n > 1+m.granted[r.Op] {
			m.t.Errorf("%s: %d effects, %d granted: %s", m.ops[r.Op], n, m.granted[r.Op], show(r))
		}
		switch {
		case r.State == idem.StateCommitted && n == 0:
			m.t.Errorf("%s: COMMITTED without an effect: %s", m.ops[r.Op], show(r))
		case r.State == idem.StateFailedFinal && r.Absence == idem.AbsenceProven && n > 0, r.State == idem.StateFailedRetryable && n > 0:
			m.t.Errorf("%s: %d effects, and proven absent: %s", m.ops[r.Op], n, show(r))
		case r.State == idem.StateStarted || r.State == idem.StatePlanned || (r.State == idem.StateUnknown && !m.rules.Resend && !r.Granted):
			m.t.Errorf("%s: never settled: %s", m.ops[r.Op], show(r))
		}
	}
}

func runModel(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{house: newHouse(t), rnd: rand.New(rand.NewPCG(seed, 0)), effects: map[string]int{}, granted: map[idem.ID]int{}, ops: map[idem.ID]string{},
			guards: make([]*idem.Guard, 2+seed%2), ways: make([]*process, 2+seed%2), pids: make([]int, 2+seed%2)}
		m.world.act = func(_ *world, d idem.Dispatch) idem.Outcome { return m.act(d) }
		m.world.find = func(_ *world, l idem.Lookup) (idem.Finding, error) { return m.find(l) }
		m.rules.Timeout, m.rules.FailureTTL = 10*time.Second, time.Minute
		m.atomic = seed%12 >= 8
		switch seed % 4 {
		case 0, 1:
			m.reconcile(5 * time.Second)
		case 2:
			m.rules.Resend = true
		}
		for i := range m.guards {
			m.start(i)
		}
		m.live()
		m.rest()
	})
	if t.Failed() {
		t.Logf("again: IDEM_SEED=%d go test -run TestRandomModel .", seed)
	}
}

// TestRandomModel runs a few fixed seeds and as many fresh ones; IDEM_TORTURE=10m goes on for so
// long, and IDEM_SEED=N one again.
func TestRandomModel(t *testing.T) {
	if s := os.Getenv("IDEM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		runModel(t, seed)
		return
	}
	limit, err := time.ParseDuration(cmp.Or(os.Getenv("IDEM_TORTURE"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{0, 3, 6, 8} { // with a query, with nothing, sent again, and atomic
		runModel(t, seed)
		runModel(t, rand.Uint64())
	}
	for end := time.Now().Add(limit); time.Now().Before(end) && !t.Failed(); {
		runModel(t, rand.Uint64())
	}
}
