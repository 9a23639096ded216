package idem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Config says what a Guard works with.
type Config struct {
	Store     Store     // required
	Policy    Policy    // required
	Owner     Owner     // this process; required
	Processes Processes // required
	Observer  Observer  // nil: nobody is told

	// ClientTimeout is how long a client waits for an answer; one that comes
	// later counts as not delivered. 0: 55 s.
	ClientTimeout time.Duration
	// Command is how an operator calls the program that decides about this
	// ledger, for the text of CodeNeedsReview; empty: mcp-idem-server.
	Command string
	// Random fills tokens and ids; nil: crypto/rand. It must not fail.
	Random func(p []byte)
}

// Processes tells what became of other processes.
type Processes interface {
	// Dead reports whether the owner is known to have ended. An owner on another
	// machine never is.
	Dead(o Owner) bool
	// EndGroup ends what is left of a process group that a dead owner led, and
	// reports whether none of it is left.
	EndGroup(ctx context.Context, o Owner, g Group) bool
}

// Guard stands between ask and effect. It is safe for concurrent use.
type Guard struct {
	cfg   Config
	marks *marker
	locks keyed // contenders for one claim in this process

	ctx    context.Context // of what outlives its asker; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // attempts and queries under way

	nudge chan struct{} // a query has ended: something may be due sooner

	mu      sync.Mutex
	flights map[ID]*flight
	queries map[ID]chan struct{}
}

// New checks the configuration and returns a Guard.
func New(cfg Config) (*Guard, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("idem: Config.Store is missing")
	case cfg.Policy == nil:
		return nil, errors.New("idem: Config.Policy is missing")
	case cfg.Processes == nil:
		return nil, errors.New("idem: Config.Processes is missing")
	case cfg.Owner == Owner{}:
		return nil, errors.New("idem: Config.Owner is missing")
	case cfg.ClientTimeout < 0:
		return nil, errors.New("idem: Config.ClientTimeout is negative")
	}
	if cfg.ClientTimeout == 0 {
		cfg.ClientTimeout = 55 * time.Second
	}
	if cfg.Command == "" {
		cfg.Command = "mcp-idem-server"
	}
	if cfg.Random == nil {
		cfg.Random = func(p []byte) { _, _ = rand.Read(p) }
	}
	g := &Guard{cfg: cfg, flights: map[ID]*flight{}, queries: map[ID]chan struct{}{}, nudge: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.marks = &marker{commit: g.commitMarks}
	return g, nil
}

// Do answers an ask: it replays, waits for, settles or refuses, and calls
// effect at most once per claim. It returns at the latest when ctx ends; the
// attempt goes on without the asker.
func (g *Guard) Do(ctx context.Context, ask Ask, effect Effect) Answer {
	a := g.do(ctx, ask, effect)
	if a.Err != nil {
		if a.Record == nil {
			a.Record = a.Err.Record
		}
		if a.Op == (ID{}) {
			a.Op = a.Err.Op
		}
		a.Err.Op, a.Err.Record = a.Op, a.Record
		g.observe(Observation{What: "refused", Op: a.Op, Record: a.Record, Code: a.Err.Code, Err: a.Err.Err})
	}
	return a
}

func (g *Guard) do(ctx context.Context, ask Ask, effect Effect) Answer {
	rules, ok := g.cfg.Policy.Rules(ask.Tool)
	if !ok {
		return Answer{Err: &Error{Code: CodeInvalidArguments, Text: fmt.Sprintf("The tool %s is not configured here. Nothing was sent.", ask.Tool)}}
	}
	incarnation := ""
	if rules.Process {
		site, err := g.prepare(ctx, effect)
		if err != nil {
			return Answer{Err: &Error{Code: CodeFailed, Text: "The upstream cannot be reached, so nothing was sent: " + err.Error(), Err: err}}
		}
		incarnation = site.Incarnation
	}
	q, refused := newQuestion(ask, rules, incarnation, g.nonce)
	if refused != nil {
		return Answer{Err: refused}
	}
	w := &asker{g: g, q: q, effect: effect, asked: time.Now()}
	w.limit = w.asked.Add(rules.Wait)
	return w.run(ctx)
}

// Close waits until every attempt under way has ended and is recorded, or ctx
// ends. No ask may be under way.
func (g *Guard) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { g.wg.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("idem: attempts are still under way: %w", ctx.Err())
	}
	g.marks.close()
	g.cancel()
	return err
}

func (g *Guard) observe(o Observation) {
	if g.cfg.Observer != nil {
		g.cfg.Observer.Observe(o)
	}
}

func (g *Guard) token() (t Token) {
	g.cfg.Random(t[:])
	return t
}

func (g *Guard) nonce() string {
	t := g.token()
	return string(t[:])
}

func (g *Guard) prepare(ctx context.Context, e Effect) (Site, error) {
	if e.Prepare == nil {
		return Site{}, nil
	}
	return e.Prepare(ctx)
}

func unavailable(err error) *Error {
	return &Error{Code: CodeLedgerUnavailable, Text: "The ledger cannot be written or read, so nothing was sent.", Err: err}
}

func unavailableAnswer(err error) Answer { return Answer{Err: unavailable(err)} }

// keyed serialises holders of the same id.
type keyed struct {
	mu   sync.Mutex
	held map[ID]*keyedLock
}

type keyedLock struct {
	free  chan struct{} // holds one value while nobody has the lock
	users int
}

// lock waits for the id until ctx ends and says whether it had to wait. ok is
// false when ctx was faster.
func (k *keyed) lock(ctx context.Context, id ID) (unlock func(), waited, ok bool) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[ID]*keyedLock{}
	}
	l := k.held[id]
	if l == nil {
		l = &keyedLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		k.held[id] = l
	}
	l.users++
	waited = l.users > 1
	k.mu.Unlock()
	select {
	case <-l.free:
		ok = true
	default:
		select {
		case <-l.free:
			ok = true
		case <-ctx.Done():
		}
	}
	return func() {
		if ok {
			l.free <- struct{}{}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, id)
		}
	}, waited, ok
}
