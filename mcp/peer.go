package mcp

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mcp-idem/mcp-idem"
)

// wire carries messages to one incarnation of an upstream. What comes back goes
// to [peer.line], from any goroutine. It is safe for concurrent use.
type wire interface {
	// request sends a request. n is how many of its bytes may have left: an error
	// with n == 0 says that nothing was sent, and another one that nothing can be
	// sent after it. A wire that learns later what became of a request tells
	// [peer.lost].
	request(key uint64, parts ...[]byte) (n int, err error)
	// notify sends what gets no answer.
	notify(parts ...[]byte) error
	// end ends the incarnation, by force after grace. It returns when every
	// request has its end, whether or not it can be ended.
	end(grace time.Duration)
	// ending reports whether it has ended or is about to, also where nobody has
	// noticed yet.
	ending() bool
	// agreed tells it the server's answer to initialize.
	agreed(result []byte)
	// lastWords are what it has said beside the protocol before it ended.
	lastWords() []string
}

// peer is one incarnation of an upstream, a process or a session over HTTP, from
// its start until every request that it got has an end.
type peer struct {
	up          *Upstream
	wire        wire
	group       idem.Group // of the process; zero: there is none
	incarnation string
	log         zerolog.Logger
	born        time.Time

	// Of the handshake; guarded by Upstream.mu.
	shaking bool // one is under way
	shook   bool // one has been finished
	modern  bool // the server speaks the stateless protocol

	informed bool // it was told what the client had set; guarded by Upstream.mu

	// How requests are fitted to it; set before it takes any.
	era   atomic.Uint32
	hello hello                  // toModern, mixed: who the client is
	said  []byte                 // toLegacy: the server's answer to initialize
	level atomic.Pointer[[]byte] // toModern: of log messages, as the client has set it

	mu      sync.Mutex
	pending map[uint64]*pending
	dying   bool // nothing can be sent any more
	buried  bool // every request has its end

	own    atomic.Bool   // the handshake was ours, not the client's
	useful atomic.Bool   // it answered something
	gone   chan struct{} // every pending request has its end, and the upstream knows
	leave  sync.Once     // closes gone
}

// pending is a request that the peer owes an answer.
type pending struct {
	id   []byte   // under which the client knows it; nil: it is ours
	from *session // its client's
	// Of a subscription: what it is to, raw (params.notifications).
	wants []byte
	// Of a request that passes through: whom to answer.
	to *session
	// Of any other: called once; it must not wait for anything.
	done func(reply)
	// Of a guarded call: called when an answer began that cannot be read. The
	// call stays pending.
	cut func()
	// Of a request over HTTP: headers of its own, and how it is sent anew where
	// the session was not known any more; nil: not at all.
	header http.Header
	resend func()
	// How the answer is changed, first for the client's era; nil: not at all.
	fit, fix func(envelope) envelope
}

// reply is what became of a request.
type reply struct {
	env    envelope // of the answer; valid during the call of done
	broken bool     // an answer began and cannot be read
	sent   int      // bytes that left; only with err
	err    error    // there is no answer and there will be none
	ended  bool     // with err: it is known that nothing of it goes on
	closed bool     // with err, over HTTP: no more bytes of it can leave
	sentAt time.Time
	// Over HTTP, with err: how the server refused, and what it wrote to it.
	status     int
	retryAfter time.Duration
}

var (
	errGone  = errors.New("the upstream's process has ended")
	errStuck = errors.New("the upstream's process cannot be ended")
)

func (u *Upstream) newPeer(log zerolog.Logger) *peer {
	return &peer{up: u, incarnation: newID(), born: time.Now(), log: log, pending: map[uint64]*pending{}, gone: make(chan struct{})}
}

// bury gives every request its end. What the client is told has a goroutine of
// its own: it may not be reading.
func (c *peer) bury(r reply) {
	c.mu.Lock()
	left, again := c.pending, c.buried
	c.pending, c.buried = nil, true
	c.mu.Unlock()
	if again {
		return
	}
	var passed []*pending
	for _, p := range left {
		if p.done == nil {
			passed = append(passed, p)
		} else {
			p.done(r)
		}
	}
	failed := c.up.forget(c)
	go func() {
		for _, p := range passed {
			p.fail(r)
		}
		if client := c.up.client.Load(); client != nil {
			client.asks.drop(c, client)
		}
		if failed != nil {
			c.up.refuseInit(failed)
		}
	}()
}

// stopSending sees to it that nothing new is sent.
func (c *peer) stopSending() {
	c.mu.Lock()
	c.dying = true
	c.mu.Unlock()
	c.up.mu.Lock()
	c.up.live.CompareAndSwap(c, nil)
	c.up.mu.Unlock()
}

func (c *peer) isBuried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buried
}

func (c *peer) isDying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dying
}

// stop ends the peer. It returns when every request has its end.
func (c *peer) stop(grace time.Duration) {
	c.stopSending()
	c.wire.end(grace)
	<-c.gone
}

// left is called once nothing comes from the peer any more.
func (c *peer) left(r reply) {
	c.bury(r)
	c.up.announce(c.incarnation)
	c.leave.Do(func() { close(c.gone) })
}

// within waits for a channel to be closed, at most d.
func within(ch <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-t.C:
		return false
	}
}

// send sends a request: the line with our id in the place of its own. An error
// means that nothing was sent, and that the request has no end but this one.
func (c *peer) send(line []byte, id span, p *pending) (key uint64, err error) {
	key = c.up.nextID.Add(1)
	return key, c.sendAs(key, line, id, p)
}

func (c *peer) sendAs(key uint64, line []byte, id span, p *pending) error {
	c.mu.Lock()
	if c.dying {
		c.mu.Unlock()
		return errGone
	}
	c.pending[key] = p
	c.mu.Unlock()
	var num [20]byte
	n, err := c.wire.request(key, line[:id.from], strconv.AppendUint(num[:0], key, 10), line[id.to:])
	switch {
	case err == nil:
		return nil
	case n > 0: // it understands nothing more; how the request ends is seen when it does
		c.log.Warn().Err(err).Int("bytes", n).Msg("a part of a request was written; the upstream is ended")
		go c.stop(0)
		return nil
	case c.take(key) == nil: // somebody else told it already
		return nil
	}
	go c.stop(stopGrace) // it takes nothing more
	c.stopSending()
	return err
}

// take removes a pending request; nil: it has its end already.
func (c *peer) take(key uint64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[key]
	delete(c.pending, key)
	return p
}

// pendingOf is a request that has no end yet; nil: it has.
func (c *peer) pendingOf(key uint64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[key]
}

// idle is closed when every request has its end.
func (c *peer) idle() <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		for {
			c.mu.Lock()
			n := len(c.pending)
			c.mu.Unlock()
			if n == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return ch
}

// lost ends a request whose answer does not come.
func (c *peer) lost(key uint64, r reply) {
	if p := c.take(key); p != nil {
		p.fail(r)
	}
}

// end hands over an answer.
func (p *pending) end(e envelope) {
	for _, change := range []func(envelope) envelope{p.fit, p.fix} {
		if change != nil {
			e = change(e)
		}
	}
	if p.done != nil {
		p.done(reply{env: e})
		return
	}
	p.to.passAnswer(p.id, e)
}

func (p *pending) fail(r reply) {
	switch {
	case p.done != nil:
		p.done(r)
		return
	case p.resend != nil && errors.Is(r.err, errNoSession):
		again := p.resend
		p.resend = nil
		again()
		return
	case r.env.errObj.there(): // an answer, for who only passes it on
		p.end(r.env)
		return
	}
	p.to.failPassed(p.id, r)
}
