package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/crash"
	"github.com/mcp-idem/mcp-idem/policy"
)

// call is one guarded tools/call.
type call struct {
	s      *session
	up     *Upstream
	env    envelope // its line is a copy, and names the tool as the upstream does
	id     []byte
	name   string // of the tool, as the upstream knows it
	params names
	meta   names
	rules  Tool
	modern bool
	unfit  error           // why prepare refused, where that is the configuration's fault
	ctx    context.Context // of the asker
	stop   context.CancelFunc

	mu        sync.Mutex
	over      bool        // no answer is owed any more
	unwanted  bool        // the client cancelled it
	delivered func(error) // set with its answer
	on        *peer
	key       uint64
	passedOn  bool          // the cancellation was, or is about to be
	forwarded chan struct{} // closed when it has been
}

// cancelGrace is how long a server that was told of a cancellation may take to
// answer before asks are freed; most then never do.
const cancelGrace = 10 * time.Second

// listLimit is how long a call waits for the upstream to list its tools.
const listLimit = 10 * time.Second

// gather copies an object's members by name; the last of a name counts.
func gather(object []byte, once ...string) (names, error) {
	var s scanner
	out := names{}
	var twice error
	err := s.members(object, func(name []byte, v span) {
		key := string(name)
		if _, there := out[key]; there {
			for _, o := range once {
				if key == o {
					twice = errTwice
				}
			}
		}
		out[key] = v.of(object)
	})
	return out, errors.Join(err, twice)
}

// call takes a tools/call. One whose tool only reads passes through on the
// spot.
func (s *session) call(e envelope) {
	params := e.params.of(e.line)
	name, err := toolName(params)
	if err != nil {
		s.sayError(e.rawID(), codeInvalidParams, err.Error())
		s.done()
		return
	}
	up, tool := s.target(name)
	switch {
	case s.g.controls.has(name):
		s.control(e, name)
	case up == nil && s.searches():
		e.line = bytes.Clone(e.line)
		go s.search(e, name)
	case up == nil || !up.allows(tool):
		s.sayError(e.rawID(), codeInvalidParams, "unknown tool: "+name)
		s.done()
	default:
		if tool != name {
			e = renamed(e, tool)
		}
		s.callOf(up, e, tool)
	}
}

// callOf takes a tools/call whose server is known.
func (s *session) callOf(up *Upstream, e envelope, name string) {
	rules := s.g.cfg.Policy.Tool(up.cfg.Name + "/" + name)
	if rules.Effect == policy.EffectRead {
		s.passTo(up, e)
		return
	}
	hint := rules.Effect == "" && up.cfg.TrustHints
	if hint {
		if t, known := up.tools.get(name); known {
			if hint = false; t != nil && t.ReadOnly {
				s.passTo(up, e)
				return
			}
		}
	}
	e.line = bytes.Clone(e.line)
	c := &call{s: s, up: up, env: e, id: e.rawID(), name: name, rules: rules, forwarded: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(s.ctx)
	s.mu.Lock()
	s.calls[string(c.id)] = c
	s.mu.Unlock()
	go c.serve(hint)
}

// toolName reads the tool's name. What names a tool twice is not guessed at.
func toolName(params []byte) (string, error) {
	var name []byte
	n := 0
	var s scanner
	err := s.members(params, func(member []byte, v span) {
		if string(member) == `"name"` {
			name = v.of(params)
			n++
		}
	})
	if err != nil || n != 1 || name[0] != '"' {
		return "", errors.New("tools/call needs one name")
	}
	return unquote(name)
}

// serve sees a call through on its own goroutine.
func (c *call) serve(hint bool) {
	defer c.stop()
	if hint {
		ctx, cancel := context.WithTimeout(c.ctx, listLimit)
		t, err := c.up.tool(ctx, c.name)
		cancel()
		if err != nil {
			c.s.g.cfg.Log.Warn().Err(err).Str("tool", c.name).Msg("the tool's hints are not known: it is guarded")
		}
		if t != nil && t.ReadOnly {
			if c.finish(nil) {
				c.s.passTo(c.up, c.env)
			} else {
				c.s.done()
			}
			return
		}
	}
	defer c.s.done()
	answer := c.ask()
	parts := c.render(&answer)
	if !c.finish(&answer) {
		return
	}
	err := c.s.out.answer(c.id, parts...)
	c.delivered(err)
	if err != nil {
		c.s.g.cfg.Log.Debug().Err(err).Msg("the client does not read any more")
	}
	crash.At("delivered")
}

// finish reports whether an answer is owed, and takes the call off the list. An
// answer that is given stays in reach of a cancellation for a while.
func (c *call) finish(a *idem.Answer) bool {
	c.mu.Lock()
	owed := !c.over
	c.over = true
	if owed && a != nil {
		c.delivered = a.Deliver()
	}
	c.mu.Unlock()
	s, id := c.s, string(c.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[id] == c {
		delete(s.calls, id)
	}
	if owed && a != nil {
		s.given[id] = c
	}
	return owed
}

var errUnwanted = errors.New("the client has cancelled the request")

// cancelled ends the wait of the asker, not the attempt. An answer that has just
// been given was thrown away.
func (c *call) cancelled(note envelope, at span) {
	c.mu.Lock()
	first, thrownAway := !c.over, c.delivered
	c.over, c.unwanted = true, c.unwanted || first
	on, key := c.on, c.key
	passOn := first && c.rules.ForwardCancel && on != nil
	c.passedOn = c.passedOn || passOn
	c.mu.Unlock()
	if thrownAway != nil {
		thrownAway(errUnwanted)
	}
	if !first {
		return
	}
	c.s.out.abandon(c.id)
	c.stop()
	if passOn {
		on.forwardCancel(note, at, key)
		close(c.forwarded)
	}
}

func refuse(code idem.Code, text string) idem.Answer {
	return idem.Answer{Err: &idem.Error{Code: code, Text: text}}
}

func (c *call) ask() idem.Answer {
	params, err := gather(c.env.params.of(c.env.line), `"name"`, `"arguments"`, `"_meta"`)
	if err != nil {
		return refuse(idem.CodeInvalidArguments, "The request names a part of itself twice. Nothing was sent.")
	}
	c.params = params
	if raw := params[`"_meta"`]; raw != nil {
		c.meta, _ = gather(raw)
	}
	_, c.modern = c.meta[`"`+metaVersion+`"`]
	if _, there := params[`"task"`]; there {
		return refuse(idem.CodeInvalidArguments, "Calls that run as tasks are not supported for tools with side effects. Nothing was sent.")
	}
	g := c.s.g
	ask := idem.Ask{Tenant: c.s.who.tenant, Tool: c.up.cfg.Name + "/" + c.name, Args: params[`"arguments"`], Run: c.s.run}
	if err := g.identity.fill(&ask, c.s.who, place{params, c.meta, c.env.head}); err != nil {
		refused, _ := errors.AsType[*idem.Error](err)
		return idem.Answer{Err: refused}
	}
	ask.Conn = c.s.connection(ask.Task)
	answer := g.cfg.Guard.Do(c.ctx, ask, idem.Effect{Prepare: c.prepare, Run: c.attempt})
	if refused, ok := errors.AsType[*idem.Error](c.unfit); ok && answer.Err != nil {
		return idem.Answer{Err: refused}
	}
	return answer
}

// fits refuses a call whose key is to be carried by an argument that is none of
// the tool's: the server would refuse the call, or drop the key. A list of tools
// that cannot be had proves nothing.
func (c *call) fits(ctx context.Context) error {
	if c.rules.Argument == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	t, err := c.up.tool(ctx, c.name)
	if err != nil || t == nil || t.Takes(c.rules.Argument) {
		return nil
	}
	c.s.g.cfg.Log.Error().Str("tool", c.name).Str("argument", c.rules.Argument).Msg("forward.argument does not fit the tool's schema")
	return &idem.Error{Code: idem.CodeInvalidArguments, Text: fmt.Sprintf(
		"The configuration sends the key as argument %q, which the schema of %s/%s does not allow. Nothing was sent.",
		c.rules.Argument, c.up.cfg.Name, c.name)}
}

func (c *call) prepare(ctx context.Context) (idem.Site, error) {
	if c.unfit = c.fits(ctx); c.unfit != nil {
		return idem.Site{}, c.unfit
	}
	p, err := c.up.ready(ctx)
	if err == nil && c.rules.Process && p.wire.ending() { // what it held is gone, whoever has noticed
		select {
		case <-p.gone:
			p, err = c.up.ready(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return idem.Site{}, err
	}
	return idem.Site{Group: p.group, Incarnation: p.incarnation}, nil
}

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
	line := splice(c.env.line, c.env.params, params)
	id := c.env.id
	if c.env.params.from < id.from {
		shift := len(line) - len(c.env.line)
		id = span{id.from + shift, id.to + shift}
	}
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
	return c.on != nil && era(c.on.era.Load()) == toModern
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
		if r.ended {
			o.Ended = idem.EndByGroup
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
