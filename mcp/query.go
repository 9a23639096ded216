package mcp

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"
)

// RPCError is a JSON-RPC error that a request of ours was answered with.
type RPCError struct {
	Code    int64
	Message string
	Raw     []byte // the error object
}

func (e *RPCError) Error() string { return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message) }

// Call calls a tool of the upstream by its own name, past the guard: it is for
// queries. The result is raw, an isError one included. An error says that there
// is no answer, or a *RPCError.
func (u *Upstream) Call(ctx context.Context, tool string, args []byte) ([]byte, error) {
	params := append([]byte(`{"name":`), quote(tool)...)
	if args != nil {
		params = append(append(params, `,"arguments":`...), args...)
	}
	return u.request(ctx, "tools/call", append(params, '}'))
}

// request makes a request of our own.
func (u *Upstream) request(ctx context.Context, method string, params []byte) ([]byte, error) {
	c, err := u.forQuery(ctx)
	if err != nil {
		return nil, err
	}
	if c.modern || u.stateless() {
		if params, err = setIn(params, "_meta", ownHello.meta()...); err != nil {
			return nil, err
		}
	}
	return c.ask(ctx, method, params)
}

// stateless reports that the client speaks the protocol without handshake.
func (u *Upstream) stateless() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.traffic
}

// forQuery returns a process that a handshake was made with. Whose it was is
// the same to a query, but the client's is better waited for: a handshake of
// ours costs a process when the client comes.
func (u *Upstream) forQuery(ctx context.Context) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience+ownShakeLimit)
	defer cancel()
	wait := u.cfg.ClientWait - time.Since(u.begun)
	if wait > 0 {
		waited := time.AfterFunc(wait, func() {
			u.mu.Lock()
			u.changedLocked()
			u.mu.Unlock()
		})
		defer waited.Stop()
	}
	return u.await(ctx, func() *peer {
		c := u.live.Load()
		switch {
		case c == nil:
			return nil
		case c.shook || u.traffic:
			return c
		case u.init == nil && time.Since(u.begun) >= u.cfg.ClientWait:
			c.shaking = true
			c.own.Store(true)
			u.live.CompareAndSwap(c, nil)
			go u.shakeOwn(c, ownHello)
		}
		return nil
	})
}

// ask makes a request and waits for its answer. When the asker gives up, the
// server is told.
func (c *peer) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	head := `{"jsonrpc":"2.0","id":`
	line := append([]byte(head+`0,"method":`), quote(method)...)
	line = append(append(append(line, `,"params":`...), params...), '}')
	type answer struct {
		result []byte
		err    error
	}
	ch := make(chan answer, 1)
	p := &pending{done: func(r reply) {
		switch {
		case r.err != nil:
			ch <- answer{err: r.err}
		case r.broken:
			ch <- answer{err: fmt.Errorf("%s: the answer cannot be read", method)}
		case r.env.errObj.there():
			ch <- answer{err: rpcError(r.env.errObj.of(r.env.line))}
		default:
			ch <- answer{result: bytes.Clone(r.env.result.of(r.env.line))}
		}
	}}
	key := c.up.nextID.Add(1)
	go func() { // a server that does not read must not outlast ctx
		if err := c.sendAs(key, line, span{len(head), len(head) + 1}, p); err != nil {
			ch <- answer{err: err}
		}
	}()
	select {
	case a := <-ch:
		return a.result, a.err
	case <-ctx.Done():
		if c.take(key) != nil {
			go c.cancel(key)
		}
		return nil, ctx.Err()
	}
}

// cancel tells the server that nobody waits for an answer any more.
func (c *peer) cancel(key uint64) {
	note := strconv.AppendUint([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), key, 10)
	_ = c.wire.notify(append(note, `,"reason":"the asker gave up"}}`...))
}

// forwardCancel sends the client's own note on, with the id that the server
// knows; at is the id's place in the params.
func (c *peer) forwardCancel(e envelope, at span, key uint64) {
	from := e.params.from
	_ = c.wire.notify(e.line[:from+at.from], strconv.AppendUint(nil, key, 10), e.line[from+at.to:])
}

// takePassed removes a request that was passed on for a client's id.
func (c *peer) takePassed(to *session, id []byte) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, p := range c.pending {
		if p.to == to && p.done == nil && bytes.Equal(p.id, id) {
			delete(c.pending, key)
			return key, true
		}
	}
	return 0, false
}

// withdraw takes back a request of which nobody wants the answer any more.
func (u *Upstream) withdraw(p *pending) {
	c := u.live.Load()
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, q := range c.pending {
		if q == p {
			delete(c.pending, key)
			go c.cancel(key)
			return
		}
	}
}

func rpcError(raw []byte) *RPCError {
	e := &RPCError{Raw: bytes.Clone(raw)}
	if at, err := member(raw, "code"); err == nil && at.there() {
		e.Code, _ = strconv.ParseInt(string(at.of(raw)), 10, 64)
	}
	if at, err := member(raw, "message"); err == nil && at.there() {
		e.Message, _ = unquote(at.of(raw))
	}
	return e
}
