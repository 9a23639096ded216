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
}

const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
	metaVersion   = "io.modelcontextprotocol/protocolVersion"
	discoverLimit = 3 * time.Second
	ownShakeLimit = 30 * time.Second
)

var initializedLine = []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)

// ownMeta is what requests of ours carry to a stateless server.
var ownMeta = []byte(`{"` + metaVersion + `":"` + modernVersion + `","io.modelcontextprotocol/clientInfo":{"name":"mcp-idem","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`)

// initialize takes a client's initialize. It goes to the process that is there,
// said again or not, unless we have shaken hands with that one by ourselves;
// however many have to be started until one answers, nothing with an effect has
// been sent.
func (u *Upstream) initialize(e envelope, tell func(reply)) {
	line := bytes.Clone(e.line)
	u.mu.Lock()
	before := u.init
	u.init = &clientInit{line: line, id: e.id, tell: tell, owed: true}
	u.traffic = false
	failed := u.failed
	var stop *peer
	switch c := u.cur; {
	case failed != nil:
	case c == nil:
		u.startLocked()
	case c.own.Load():
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
	if r.err != nil {
		return // it has ended, or will be
	}
	u.mu.Lock()
	if u.init != in { // the client has said it again since
		u.mu.Unlock()
		return
	}
	owed := in.owed
	in.owed = false
	refused := r.broken || r.env.errObj.there()
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
		if to = u.cur; to != nil && (!to.shook || to.shaking) {
			to = nil
		}
	}
	u.mu.Unlock()
	if to != nil {
		_ = to.wire.notify(line)
	}
}

// withoutHandshake notes that a client sends requests and never said
// initialize: it speaks the stateless protocol, and none will come.
func (u *Upstream) withoutHandshake() {
	u.mu.Lock()
	u.traffic = u.init == nil
	u.changedLocked()
	u.mu.Unlock()
}

// shakeOwn makes a handshake of our own, where a query needs the upstream and
// no client is there: a stateless server says so in its answer to
// server/discover, any other gets initialize.
func (u *Upstream) shakeOwn(c *peer) {
	ctx, cancel := context.WithTimeout(context.Background(), ownShakeLimit)
	defer cancel()
	modern, err := c.greet(ctx)
	u.mu.Lock()
	c.shaking = false
	c.shook = err == nil
	c.modern = modern
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

func (c *peer) greet(ctx context.Context) (modern bool, err error) {
	probe, cancel := context.WithTimeout(ctx, discoverLimit)
	_, err = c.ask(probe, "server/discover", append(append([]byte(`{"_meta":`), ownMeta...), '}'))
	cancel()
	if err == nil {
		return true, nil
	}
	if errors.Is(err, errGone) {
		return false, err
	}
	_, err = c.ask(ctx, "initialize", []byte(`{"protocolVersion":"`+legacyVersion+`","capabilities":{},"clientInfo":{"name":"mcp-idem","version":"1"}}`))
	if err != nil {
		return false, err
	}
	err = c.wire.notify(initializedLine)
	return false, err
}
