package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// callTo takes a tools/call whose server is known.
func (s *session) callTo(up *Upstream, e envelope, name string) {
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
	if rules.Process && up.cfg.stateful != nil {
		up.cfg.stateful.Store(true)
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
