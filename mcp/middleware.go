package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// MiddlewareConfig says how a server written with mcp-go guards its own tools.
type MiddlewareConfig struct {
	Guard    Guard     // required
	Policy   Policy    // required ([PolicyOf]); tools are named Server/tool
	Server   string    // required
	Identity *Identity // nil: DefaultIdentity
	// Tenant finds whose call it is, from what authenticated it; nil: default.
	Tenant func(ctx context.Context) string
}

// Middleware guards the tools of a server written with mcp-go, from the inside:
//
//	server.WithToolHandlerMiddleware(middleware)
//
// The handler runs at most once per attempt, on a context that the client's
// leaving does not end and from which [KeyFrom] tells the key to pass on. What it
// returns is recorded before anybody is told, and every answer is a value of its
// own. An error of a handler leaves the outcome open, as its text does not say how
// far it came; a failure without effect is a result with isError, which the
// policy may classify. A handler that asks for input has had no effect yet: its
// operation is parked, and goes on when the input comes, also where mcp-go asks
// an old client itself and runs the handler again.
//
// mcp-go does not tell whether an answer has left. One whose client was there
// until its handler returned counts as delivered once the client sends something
// more; clients that name steps or keys need not care.
//
// Tools that are added with AddTaskTool go past every middleware of mcp-go, and so
// past this one. A call of any other that wants to run as a task is refused.
// Members of params that mcp-go does not know (params.idempotencyKey) are not
// seen here.
func Middleware(cfg MiddlewareConfig) (sdkserver.ToolHandlerMiddleware, error) {
	if cfg.Guard == nil || cfg.Policy == nil || cfg.Server == "" {
		return nil, errors.New("mcp: MiddlewareConfig needs a Guard, a Policy and the Server's name")
	}
	if cfg.Identity == nil {
		def := DefaultIdentity()
		cfg.Identity = &def
	}
	id, err := compile(*cfg.Identity)
	if err != nil {
		return nil, err
	}
	if cfg.Tenant == nil {
		cfg.Tenant = func(context.Context) string { return "default" }
	}
	m := &middleware{cfg: cfg, identity: id}
	return func(next sdkserver.ToolHandlerFunc) sdkserver.ToolHandlerFunc {
		return func(ctx context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return m.call(ctx, req, next)
		}
	}, nil
}

type middleware struct {
	cfg      MiddlewareConfig
	identity *identity

	mu    sync.Mutex
	conns map[string]*idem.Conn // by session
}

type keyContext struct{}

// KeyFrom is the key of the operation that a guarded handler carries out, to be
// passed on to the outside system; empty outside of one.
func KeyFrom(ctx context.Context) string {
	key, _ := ctx.Value(keyContext{}).(string)
	return key
}

func (m *middleware) call(ctx context.Context, req sdk.CallToolRequest, next sdkserver.ToolHandlerFunc) (*sdk.CallToolResult, error) {
	rules := m.cfg.Policy.Tool(m.cfg.Server + "/" + req.Params.Name)
	if rules.Effect == policy.EffectRead {
		return next(ctx, req)
	}
	if req.Params.Task != nil {
		return result(&idem.Answer{Err: &idem.Error{Code: idem.CodeInvalidArguments, Text: "Calls that run as tasks are not supported for tools with side effects. Nothing was sent."}})
	}
	ask, err := m.ask(ctx, req)
	if err != nil {
		return result(&idem.Answer{Err: err})
	}
	answer := m.cfg.Guard.Do(ctx, ask, idem.Effect{Run: func(attempt context.Context, d idem.Dispatch) idem.Outcome {
		return m.run(ctx, attempt, req, next, d, rules)
	}})
	if ctx.Err() == nil {
		answer.Deliver()(nil)
	}
	return result(&answer)
}

// ask reads who asks for what.
func (m *middleware) ask(ctx context.Context, req sdk.CallToolRequest) (idem.Ask, *idem.Error) {
	ask := idem.Ask{Tenant: m.cfg.Tenant(ctx), Tool: m.cfg.Server + "/" + req.Params.Name, Args: req.Params.RawArguments}
	bad := func(err error) *idem.Error {
		if e, ok := errors.AsType[*idem.Error](err); ok {
			return e
		}
		return &idem.Error{Code: idem.CodeInvalidArguments, Text: "The request cannot be read: " + err.Error() + ". Nothing was sent."}
	}
	if ask.Args == nil && req.Params.Arguments != nil { // of a client in this process
		raw, err := json.Marshal(req.Params.Arguments)
		if err != nil {
			return ask, bad(err)
		}
		ask.Args = raw
	}
	in := place{head: req.Header}
	if req.Params.Meta != nil {
		raw, err := json.Marshal(req.Params.Meta)
		if err == nil {
			in.meta, err = gather(raw)
		}
		if err != nil {
			return ask, bad(err)
		}
	}
	who := caller{task: m.identity.anyTask, http: req.Header != nil}
	session := sdkserver.ClientSessionFromContext(ctx)
	if session != nil && session.SessionID() != "" {
		if who.http {
			who.task = "http-" + session.SessionID()
		}
		ask.Conn = m.conn(session.SessionID())
		ask.Conn.Heard()
	} else if who.http { // strangers have no task in common
		who.task = ""
	}
	if err := m.identity.fill(&ask, who, in); err != nil {
		return ask, bad(err)
	}
	return ask, nil
}

// conn is a session's connection.
func (m *middleware) conn(session string) *idem.Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.conns[session]
	if c == nil {
		if m.conns == nil || len(m.conns) >= connsLimit {
			m.conns = map[string]*idem.Conn{}
		}
		c = m.cfg.Guard.Conn()
		m.conns[session] = c
	}
	return c
}

// run is one attempt: the handler, with the values of the asker's context and
// the end of the attempt's.
func (m *middleware) run(asker, attempt context.Context, req sdk.CallToolRequest, next sdkserver.ToolHandlerFunc, d idem.Dispatch, rules Tool) idem.Outcome {
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(asker), keyContext{}, d.Key))
	defer cancel()
	defer context.AfterFunc(attempt, cancel)()
	said, err := next(ctx, req)
	var raw []byte
	if err == nil {
		if said == nil {
			err = errors.New("the handler returned nothing")
		} else {
			raw, err = json.Marshal(said)
		}
	}
	var o idem.Outcome
	if err != nil {
		o = rules.Judge(End{Err: err})
	} else {
		o = rules.Judge(End{Result: raw})
		if o.Class != idem.ClassAmbiguous {
			o.Result, o.Kind = raw, idem.ResultValue
		}
	}
	o.Ended = idem.EndByAnswer
	return o
}

// result is an answer as a value of its own, which mcp-go may change.
func result(a *idem.Answer) (*sdk.CallToolResult, error) {
	raw := a.Result
	switch {
	case a.Err != nil:
		raw = made(refusalText(a), true)
	case raw == nil:
		raw = made(keptText(a.Record), false)
	}
	raw = resultWith(raw, metaOf(a))
	out := new(sdk.CallToolResult)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("the recorded result cannot be read: %w", err)
	}
	return out, nil
}
