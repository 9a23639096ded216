package mcp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/crash"
)

// attempt sends the call once, to the process that was prepared and to no
// other, and waits for its end.
func (c *call) attempt(ctx context.Context, d idem.Dispatch) idem.Outcome {
	params, err := c.outgoing(d.Key)
	if err != nil {
		return idem.Outcome{Class: idem.ClassNotSent, Text: err.Error(), Ended: idem.EndByNotSent}
	}
	on := c.up.live.Load()
	if on == nil || on.incarnation != d.Site.Incarnation {
		return c.notSent(errGone)
	}
	if params, err = on.dressed(params); err != nil {
		return idem.Outcome{Class: idem.ClassNotSent, Text: err.Error(), Ended: idem.EndByNotSent}
	}
	line, id := c.env.withParams(params)
	ends, cut := make(chan idem.Outcome, 1), make(chan struct{}, 1)
	key, err := on.send(line, id, &pending{id: c.id, from: c.s, header: c.header(d.Key), done: func(r reply) { ends <- c.outcome(r) }, cut: func() {
		select {
		case cut <- struct{}{}:
		default:
		}
	}})
	sent := time.Now()
	if err != nil {
		return c.notSent(err)
	}
	crash.At("dispatched")
	c.mu.Lock()
	c.on, c.key = on, key
	late := c.unwanted && c.rules.ForwardCancel && !c.passedOn
	c.passedOn = c.passedOn || late
	c.mu.Unlock()
	if late {
		go func() {
			on.cancel(key)
			close(c.forwarded)
		}()
	}
	o := c.wait(ctx, ends, cut, on, key, d.Free)
	if o.Sent.IsZero() {
		o.Sent = sent
	}
	return o
}

// wait waits for the attempt's end, whatever its asker does. Asks are freed
// where no answer can be counted on: when it began and cannot be read, and when
// a server that was told of a cancellation stays silent. One that comes all the
// same counts.
func (c *call) wait(ctx context.Context, ends <-chan idem.Outcome, cut <-chan struct{}, on *peer, key uint64, free func()) idem.Outcome {
	forwarded, silent := c.forwarded, (<-chan time.Time)(nil)
	for {
		select {
		case o := <-ends:
			return o
		case <-cut:
			free()
		case <-forwarded:
			forwarded, silent = nil, time.After(cancelGrace)
		case <-silent:
			free()
		case <-ctx.Done():
			if on.take(key) == nil { // it has just come
				return <-ends
			}
			return c.outcome(reply{err: errors.New("nobody waits for the answer any more"), sent: 1})
		}
	}
}

// header is what carries the key over HTTP.
func (c *call) header(key string) http.Header {
	if c.rules.Header == "" {
		return nil
	}
	return http.Header{http.CanonicalHeaderKey(c.rules.Header): {key}}
}

// translated reports whether the call went to a server of a later protocol than
// its client's.
func (c *call) translated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on == nil {
		return false
	}
	e := era(c.on.era.Load())
	return e == toModern || (e == mixed && modernHello(c.env) == nil)
}

// outgoing are the params with the key where the policy wants it. Every other
// byte is the client's.
func (c *call) outgoing(key string) ([]byte, error) {
	params := c.env.params.of(c.env.line)
	var err error
	if name := c.rules.Argument; name != "" {
		if params, err = setIn(params, "arguments", field{name, quote(key)}); err != nil {
			return nil, err
		}
	}
	if name := c.rules.Meta; name != "" {
		params, err = setIn(params, "_meta", field{name, quote(key)})
	}
	return params, err
}

// notSent is the outcome of an attempt whose process was gone, or took nothing
// any more: with a process of state, that state is lost.
func (c *call) notSent(err error) idem.Outcome {
	return idem.Outcome{Class: idem.ClassNotSent, Text: err.Error(), Ended: idem.EndByNotSent, Lost: c.rules.Process}
}

// outcome says how an attempt ended. The bytes are copied.
func (c *call) outcome(r reply) idem.Outcome {
	switch {
	case r.err != nil:
		o := c.rules.Judge(End{Err: r.err, NotSent: r.sent == 0, Status: r.status, RetryAfter: r.retryAfter})
		o.Sent = r.sentAt
		switch {
		case r.ended:
			o.Ended = idem.EndByGroup
		case r.closed && o.Class == idem.ClassAmbiguous:
			o.Ended = idem.EndByBytes
		}
		o.Lost = c.rules.Process && errors.Is(r.err, errGone)
		return o
	case !validText(r.env.line): // it is whole, and no JSON
		o := c.rules.Judge(End{Err: errors.New("the answer is not valid UTF-8")})
		o.Ended = idem.EndByAnswer
		return o
	case r.env.errObj.there():
		return ended(bytes.Clone(r.env.errObj.of(r.env.line)), idem.ResultError, func(raw []byte) idem.Outcome { return c.rules.Judge(End{Error: raw}) })
	}
	return ended(bytes.Clone(r.env.result.of(r.env.line)), idem.ResultValue, func(raw []byte) idem.Outcome { return c.rules.Judge(End{Result: raw}) })
}

// ended is the outcome of an attempt that was answered. An answer that settles
// nothing is never the outcome's result.
func ended(raw []byte, k idem.ResultKind, judge func([]byte) idem.Outcome) idem.Outcome {
	o := judge(raw)
	o.Ended = idem.EndByAnswer
	if o.Class != idem.ClassAmbiguous {
		o.Result, o.Kind = raw, k
	}
	return o
}
