package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// clientInit is the client's initialize, kept to be said to every process of
// the upstream. Guarded by Upstream.mu.
type clientInit struct {
	line []byte
	id   span
	tell func(reply) // gives the client its answer, while one is owed
	owed bool        // the client waits for it
	done []byte      // its notifications/initialized; nil: not yet said

	stateless bool // the server wants none of it
}

const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
	metaVersion   = "io.modelcontextprotocol/protocolVersion"
	discoverLimit = 3 * time.Second
	ownShakeLimit = 30 * time.Second
)

var initializedLine = []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)

// initialize takes a client's initialize. It goes to the process that is there,
// said again or not, unless we have shaken hands with that one by ourselves;
// however many have to be started until one answers, nothing with an effect has
// been sent.
func (u *Upstream) initialize(e envelope, tell func(reply)) {
	line := bytes.Clone(e.line)
	u.mu.Lock()
	before := u.init
	u.init = &clientInit{line: line, id: e.id, tell: tell, owed: true}
	u.traffic, u.modern = false, nil
	failed := u.failed
	var stop *peer
	switch c := u.cur; {
	case failed != nil:
	case c == nil:
		u.startLocked()
	case c.own.Load(), era(c.era.Load()) == toLegacy:
		u.live.CompareAndSwap(c, nil)
		stop = c
	default:
		u.shakeLocked(c)
	}
	again := before != nil && before.owed
	u.mu.Unlock()
	if again {
		before.tell(reply{err: errors.New("initialize was said again")})
	}
	if failed != nil {
		u.refuseInit(failed)
	}
	if stop != nil {
		u.log.Debug().Msg("a client has come: the server that we spoke to by ourselves is started anew")
		go stop.stop(firstBackoff)
	}
}

// shakeLocked says the client's initialize to a process. If it ends before it
// answers, buried starts another.
func (u *Upstream) shakeLocked(c *peer) {
	in := u.init
	if in.stateless {
		c.hello, c.modern = legacyHello(in.envelope()), true
		c.era.Store(uint32(toModern))
		u.shookLocked(c)
		return
	}
	c.shaking = true
	u.live.CompareAndSwap(c, nil)
	p := &pending{done: func(r reply) { u.shaken(c, in, r) }}
	go func() { // a pipe that is full must not hold up everything
		if _, err := c.send(in.line, in.id, p); err != nil {
			c.stop(0)
		}
	}()
}

// shaken is called with the answer to the client's initialize.
func (u *Upstream) shaken(c *peer, in *clientInit, r reply) {
	if r.err != nil && !r.env.errObj.there() {
		return // it has ended, or will be
	}
	u.mu.Lock()
	if u.init != in { // the client has said it again since
		u.mu.Unlock()
		return
	}
	owed := in.owed
	refused := r.broken || r.env.errObj.there()
	if owed && r.env.errObj.there() {
		u.mu.Unlock()
		go u.refused(c, in, bytes.Clone(r.env.line))
		return
	}
	in.owed = false
	if !refused {
		c.wire.agreed(r.env.result.of(r.env.line))
	}
	if refused && owed {
		u.init = nil
	} else if refused {
		u.log.Warn().Bytes("answer", r.env.line[:min(200, len(r.env.line))]).Msg("the restarted upstream refuses the client's initialize")
	}
	done := in.done
	if refused && owed {
		done = nil
	}
	if done == nil {
		u.shookLocked(c)
	}
	u.mu.Unlock()
	if done != nil { // nothing may overtake it
		go func() {
			_ = c.wire.notify(done)
			u.mu.Lock()
			if u.init == in {
				u.shookLocked(c)
			}
			u.mu.Unlock()
		}()
	}
	switch {
	case owed && r.broken:
		in.tell(reply{err: errors.New("its answer cannot be read"), sent: 1})
	case owed:
		in.tell(r)
	}
}

// refused is called when a server refuses the client's initialize: it may be one
// of the stateless protocol, and then is spoken to in that one.
func (u *Upstream) refused(c *peer, in *clientInit, refusal []byte) {
	h := legacyHello(in.envelope())
	said, _ := c.discover(context.Background(), h)
	u.mu.Lock()
	if u.init != in || !in.owed {
		u.mu.Unlock()
		return
	}
	in.owed = false
	answer := initializedBy(said, find(in.envelope().params.of(in.line), "protocolVersion"))
	if said == nil {
		u.init = nil
	} else {
		in.stateless = true
		c.hello, c.modern = h, true
		c.era.Store(uint32(toModern))
	}
	u.shookLocked(c)
	u.mu.Unlock()
	if said != nil {
		in.tell(reply{env: answerLine(answer)})
		return
	}
	var p parser
	env, err := p.parse(refusal)
	in.tell(reply{env: env, err: err})
}

func (in *clientInit) envelope() envelope {
	var p parser
	e, _ := p.parse(in.line) // it was read before
	return e
}

// shookLocked: a process has been shaken hands with.
func (u *Upstream) shookLocked(c *peer) {
	c.shaking, c.shook = false, true
	u.takeLocked(c)
	u.changedLocked()
}

// refuseInit answers an initialize that no process will.
func (u *Upstream) refuseInit(err error) {
	u.mu.Lock()
	in := u.init
	owed := in != nil && in.owed
	if owed {
		in.owed = false
	}
	u.mu.Unlock()
	if owed {
		in.tell(reply{err: err})
	}
}

// initialized takes the client's notifications/initialized. A process that has
// not answered initialize yet gets it when it has.
func (u *Upstream) initialized(line []byte) {
	u.mu.Lock()
	to := u.live.Load()
	if u.init != nil {
		u.init.done = bytes.Clone(line)
		if to = u.cur; to != nil && (!to.shook || to.shaking || u.init.stateless) {
			to = nil
		}
	}
	u.mu.Unlock()
	if to != nil {
		_ = to.wire.notify(line)
	}
}

// withoutHandshake notes that a client sends requests and never said
// initialize: none will come. Where it speaks the stateless protocol, the server
// is asked whether it does too. One that may speak the earlier protocol as well,
// and has something to answer a server, is better off with a server's own refusal
// of server/discover: it says initialize then.
func (u *Upstream) withoutHandshake(e envelope) {
	h := modernHello(e)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.traffic = u.init == nil; u.traffic && h != nil && u.modern == nil && (e.method != "server/discover" || !h.answers()) {
		u.modern = h
		if c := u.cur; c != nil && !c.shook && !c.shaking {
			u.probeLocked(c)
		}
	}
	u.changedLocked()
}

// withoutClient makes every handshake our own: requests of several clients will
// come, and none of them speaks for all.
func (u *Upstream) withoutClient() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.modern, u.traffic = &ownHello, true
}

// probeLocked introduces a stateless client to a process.
func (u *Upstream) probeLocked(c *peer) {
	c.shaking = true
	u.live.CompareAndSwap(c, nil)
	go u.shakeOwn(c, *u.modern)
}

// shakeOwn makes a handshake by ourselves: for a stateless client, or where a
// query needs the upstream and no client is there.
func (u *Upstream) shakeOwn(c *peer, h hello) {
	ctx, cancel := context.WithTimeout(context.Background(), ownShakeLimit)
	defer cancel()
	modern, said, err := c.greet(ctx, h)
	u.mu.Lock()
	c.shaking = false
	c.shook = err == nil
	c.modern = modern
	switch {
	case !modern:
		c.said = said
		c.era.Store(uint32(toLegacy))
	case u.tokens.Load() != nil:
		c.hello = h
		c.era.Store(uint32(mixed))
	}
	if err != nil {
		u.lastErr = fmt.Errorf("handshake with the upstream: %w", err)
		u.log.Warn().Err(err).Msg("handshake with the upstream failed")
	} else if u.init == nil {
		u.takeLocked(c)
	}
	u.changedLocked()
	u.mu.Unlock()
	if err != nil {
		c.stop(stopGrace)
	}
}
