package mcp

import (
	"bytes"
	"context"
)

// pass sends a client's request to the process that takes them, at once or as
// soon as there is one. p gets its end in any case.
func (u *Upstream) pass(ctx context.Context, e envelope, p *pending) {
	u.keep(e)
	if u.cfg.URL != "" {
		e.line = bytes.Clone(e.line)
		p.resend = func() { u.passLater(ctx, e, p) }
	}
	if c := u.live.Load(); c != nil {
		if u.passTo(c, e, p) {
			return
		}
	}
	e.line = bytes.Clone(e.line)
	u.passLater(ctx, e, p)
}

// passLater sends a request, whose line is a copy, to the process that comes.
func (u *Upstream) passLater(ctx context.Context, e envelope, p *pending) {
	go func() {
		for {
			c, err := u.ready(ctx)
			if err != nil {
				p.fail(reply{err: err})
				return
			}
			if u.passTo(c, e, p) {
				return
			}
		}
	}()
}

// passTo reports whether the request has its end or will get it from c.
func (u *Upstream) passTo(c *peer, e envelope, p *pending) bool {
	if e.method == "subscriptions/listen" {
		p.wants = bytes.Clone(find(e.params.of(e.line), "notifications"))
	}
	line, id, done := c.fitted(e, p)
	if done {
		return true
	}
	_, err := c.send(line, id, p)
	return err == nil
}

// notify sends a client's notification on, if a process is there.
func (u *Upstream) notify(e envelope) {
	c := u.live.Load()
	if c == nil || (era(c.era.Load()) == toModern && e.method == "notifications/roots/list_changed") {
		return
	}
	_ = c.wire.notify(e.line)
}

// cancelPassed tells the server that a client does not want the answer to a
// request that was passed on. It reports false where there is no such request.
func (u *Upstream) cancelPassed(from *session, id []byte, note envelope, at span) bool {
	c := u.live.Load()
	if c == nil {
		return false
	}
	key, ok := c.takePassed(from, id)
	if ok {
		c.forwardCancel(note, at, key)
	}
	return ok
}
