package mcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Server says how an upstream that speaks stdio is started.
type Server struct {
	Name    string // as in server/tool
	Command string // of a server that speaks stdio
	Args    []string
	Env     []string // NAME=value, added to this process's own
	Dir     string   // empty: this process's own

	URL     string            // of a server that is reached over HTTP
	Headers map[string]string // of every request to it
	SSE     bool              // the URL is of a stream of events, of protocol 2024-11-05

	// TrustHints: its readOnlyHint is believed where the policy is silent
	// (trust_hints).
	TrustHints bool

	// ClientWait is how long a query of ours waits for a client to do the
	// handshake. 0: 2 s; negative: no client will come. A [Gateway] sets it.
	ClientWait time.Duration
	// OnExit is called, on a goroutine of its own, with the incarnation of each
	// process that has ended, after all its requests have their end. nil: nobody
	// is told. A [Gateway] tells its guard where it is nil.
	OnExit func(incarnation string)
	Log    zerolog.Logger

	// Allows reports whether a tool is offered and may be called (allow, deny).
	// nil: every tool.
	Allows func(tool string) bool

	lineLimit int          // of messages, the client's too
	offers    *offers      // nil: nobody wants to know
	patient   bool         // a server that cannot be started is tried again for ever
	stateful  *atomic.Bool // set when a tool is called whose effects end with the process; nil: nobody wants to know
}

const (
	firstBackoff  = 100 * time.Millisecond
	lastBackoff   = 5 * time.Second
	lived         = 5 * time.Second  // after so long the back-off starts anew
	startTries    = 5                // of an upstream that has never answered anything
	startPatience = 15 * time.Second // of a request that needs a process
	stopGrace     = 2 * time.Second  // between the end of standard input and TERM
	clientWait    = 2 * time.Second
)

// StartError says that the upstream cannot be started or reached: its command cannot be
// run, or it ended time after time before it had answered anything.
type StartError struct {
	Command string
	URL     string   // in place of a command
	Stderr  []string // its last lines of standard error; of a URL what it answered
	Err     error
}

func (e *StartError) Error() string {
	if e.URL != "" {
		s := fmt.Sprintf("cannot reach the upstream %q: %v: %s", e.URL, e.Err, strings.Join(e.Stderr, "; "))
		if strings.Contains(s, "HTTP 404") || strings.Contains(s, "HTTP 405") {
			s += `; a server of protocol 2024-11-05 wants "type": "sse"`
		}
		return s
	}
	s := fmt.Sprintf("cannot start the upstream %q: %v", e.Command, e.Err)
	if len(e.Stderr) > 0 {
		s += "; it wrote:\n  " + strings.Join(e.Stderr, "\n  ")
	}
	return s
}

func (e *StartError) Unwrap() error { return e.Err }

// ErrClosed: the upstream was closed by us.
var ErrClosed = errors.New("the upstream is closed")

// Upstream is one conversation with a server, whatever process it is running as:
// that of one client, or one of our own. It is safe for concurrent use.
type Upstream struct {
	cfg    Server
	log    zerolog.Logger
	nextID atomic.Uint64
	live   atomic.Pointer[peer]    // takes requests of the client; nil: wait in ready
	client atomic.Pointer[session] // nil: no client is there
	tokens atomic.Pointer[tokens]  // of progress, where clients share the conversation; nil: they do not
	tools  toolCache

	transport *http.Transport // to a URL
	begun     time.Time
	useful    atomic.Bool // some process has answered something

	mu       sync.Mutex // never held while something is written
	cur      *peer
	old      []*peer // detached
	starting bool
	telling  int // calls of OnExit under way
	tries    int // processes in a row that answered nothing
	backoff  time.Duration
	lastErr  error
	failed   error         // for good
	changed  chan struct{} // closed and made anew whenever something above changes
	init     *clientInit
	traffic  bool                // a client sends requests without a handshake
	modern   *hello              // and says in them that it speaks the stateless protocol
	kept     map[string]envelope // what the client has set in the server
	closed   bool
	quit     chan struct{}
}

// NewUpstream describes an upstream; nothing is started before Start or the
// first request.
func NewUpstream(cfg Server) *Upstream {
	if cfg.ClientWait == 0 {
		cfg.ClientWait = clientWait
	}
	if cfg.lineLimit == 0 {
		cfg.lineLimit = lineLimit
	}
	u := &Upstream{cfg: cfg, log: cfg.Log.With().Str("server", cfg.Name).Logger(), begun: time.Now(),
		changed: make(chan struct{}), quit: make(chan struct{})}
	if cfg.URL != "" {
		u.transport = transport()
	}
	return u
}

// stumbled reports whether a start has failed, or a process ended that had
// answered nothing.
func (u *Upstream) stumbled() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lastErr != nil || u.tries > 0
}

func (u *Upstream) allows(tool string) bool { return u.cfg.Allows == nil || u.cfg.Allows(tool) }

// dial makes a new incarnation.
func (u *Upstream) dial() (*peer, error) {
	switch {
	case u.cfg.SSE:
		return u.connectSSE(), nil
	case u.cfg.URL != "":
		return u.connect(), nil
	}
	return u.spawn()
}

// detach lets another incarnation take the place of one that lives on for what
// is under way.
func (u *Upstream) detach(c *peer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cur == c {
		u.cur = nil
	}
	u.old = append(slices.DeleteFunc(u.old, (*peer).isBuried), c)
	u.changedLocked()
}

// Start starts the process ahead of the first request. A command that cannot
// be run gives a *StartError; that of a process that ends at once comes later,
// from whatever needs it.
func (u *Upstream) Start(ctx context.Context) error {
	_, err := u.await(ctx, func() *peer { return u.cur })
	return err
}

// Close ends the process: standard input is closed, then, after a grace, the
// group ended. Requests that still wait get their end first; a process that
// cannot be ended is left alone after some seconds.
func (u *Upstream) Close() {
	u.mu.Lock()
	left := slices.Clone(u.old)
	if u.cur != nil {
		left = append(left, u.cur)
	}
	if !u.closed {
		u.closed = true
		close(u.quit)
	}
	u.changedLocked()
	u.mu.Unlock()
	var ended sync.WaitGroup
	for _, c := range left {
		ended.Go(func() { c.stop(stopGrace) })
	}
	ended.Wait()
	u.mu.Lock()
	for u.starting || u.telling > 0 {
		ch := u.changed
		u.mu.Unlock()
		<-ch
		u.mu.Lock()
	}
	u.mu.Unlock()
}

func (u *Upstream) changedLocked() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// failure is set once the upstream cannot be started; the channel is closed at
// the next change.
func (u *Upstream) failure() (changed <-chan struct{}, failed error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed, u.failed
}

// ready returns the process that takes requests of the client. The ask is
// bounded, so that a client hears of an upstream that does not come back.
func (u *Upstream) ready(ctx context.Context) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	return u.await(ctx, u.live.Load)
}

// await waits until pick, called with mu held, finds a child, and starts one
// where none is.
func (u *Upstream) await(ctx context.Context, pick func() *peer) (*peer, error) {
	for {
		u.mu.Lock()
		if c := pick(); c != nil {
			u.mu.Unlock()
			return c, nil
		}
		switch {
		case u.failed != nil:
			defer u.mu.Unlock()
			return nil, u.failed
		case u.closed:
			u.mu.Unlock()
			return nil, ErrClosed
		}
		u.startLocked()
		ch, last := u.changed, u.lastErr
		u.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("the upstream %s is not available: %w", u.cfg.Name, ctx.Err()), last)
		}
	}
}

// startLocked sees to it that a process is there or on its way.
func (u *Upstream) startLocked() {
	if u.cur != nil || u.starting || u.closed || u.failed != nil {
		return
	}
	u.starting = true
	go u.start(u.backoff)
}

func (u *Upstream) start(after time.Duration) {
	select {
	case <-time.After(after):
	case <-u.quit:
	}
	var c *peer
	err := ErrClosed
	u.mu.Lock()
	closed := u.closed
	u.mu.Unlock()
	if !closed {
		c, err = u.dial()
	}
	u.mu.Lock()
	if c != nil && u.closed { // meanwhile
		u.mu.Unlock()
		c.stop(stopGrace)
		u.mu.Lock()
		c = nil
		closed = true
	}
	u.starting = false
	switch {
	case c == nil && !closed:
		u.lastErr = err
		u.backoff = nextBackoff(u.backoff)
		if !u.useful.Load() && !u.cfg.patient {
			u.failed = &StartError{Command: u.cfg.Command, Err: err}
		}
		u.log.Error().Err(err).Msg("cannot start the upstream")
		if u.cfg.patient { // whether or not anybody waits for it
			u.startLocked()
		}
	case c != nil && !c.isBuried():
		u.cur = c
		switch {
		case u.init != nil:
			u.shakeLocked(c)
		case u.modern != nil:
			u.probeLocked(c)
		default:
			u.takeLocked(c)
		}
	case c != nil && (u.cfg.patient || u.init != nil && u.init.owed): // it has ended already, and forget could start no other
		u.startLocked()
	}
	failed := u.failed
	u.changedLocked()
	u.mu.Unlock()
	if failed != nil {
		u.refuseInit(failed)
	}
}

// takeLocked lets the client's requests go to a process.
func (u *Upstream) takeLocked(c *peer) {
	if u.cur == c && !c.isDying() {
		u.restateLocked(c)
		u.live.Store(c)
		if client := u.client.Load(); client != nil && client.several() {
			go client.back(u)
		}
	}
}

func nextBackoff(d time.Duration) time.Duration {
	return min(max(2*d, firstBackoff), lastBackoff)
}

// forget is called when a child is gone and what it owed to us has its end. The
// error says that no other will be started.
func (u *Upstream) forget(c *peer) (failed error) {
	u.tools.drop()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cur == c {
		u.cur = nil
	}
	switch {
	case c.useful.Load() && time.Since(c.born) >= lived:
		u.backoff, u.tries = firstBackoff, 0
	case c.useful.Load():
		u.backoff, u.tries = nextBackoff(u.backoff), 0
	default:
		u.backoff = nextBackoff(u.backoff)
		u.tries++
	}
	if u.tries >= startTries && !u.useful.Load() && u.failed == nil && !u.cfg.patient {
		why := "it ended before it answered"
		if u.cfg.URL != "" {
			why = "it does not answer as an MCP server"
		}
		u.failed = &StartError{Command: u.cfg.Command, URL: u.cfg.URL, Stderr: c.wire.lastWords(), Err: errors.New(why)}
	}
	if c.own.Load() && u.init != nil { // we ended it for the client's sake
		u.backoff = 0
	}
	if (u.init != nil && u.init.owed) || (u.cfg.patient && !u.useful.Load()) {
		u.startLocked()
	}
	u.changedLocked()
	return u.failed
}

// announce tells that a process has ended.
func (u *Upstream) announce(incarnation string) {
	if u.cfg.OnExit == nil {
		return
	}
	u.mu.Lock()
	u.telling++
	u.mu.Unlock()
	go func() {
		u.cfg.OnExit(incarnation)
		u.mu.Lock()
		u.telling--
		u.changedLocked()
		u.mu.Unlock()
	}()
}

// newID is a random id.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
