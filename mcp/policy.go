package mcp

import (
	"context"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// Guard is what the gateway needs of an [idem.Guard].
type Guard interface {
	Conn() *idem.Conn
	Do(ctx context.Context, ask idem.Ask, effect idem.Effect) idem.Answer
	LostProcess(ctx context.Context, tenant, server, incarnation string) error
}

// Policy says what the configuration has about a tool, by its full name
// (server/tool). It is asked once per call and is safe for concurrent use.
type Policy interface {
	Tool(name string) Tool
}

// Tool is what the gateway has to know about a tool.
type Tool struct {
	Effect        policy.Effect // empty: the policy does not say; a write, unless a hint is believed
	Process       bool          // state: process
	ForwardCancel bool          // cancel: forward
	Argument      string        // forward.argument: the argument that carries the key; empty: none
	Meta          string        // forward.meta: the member of _meta that does
	Header        string        // forward.header: the HTTP header that does

	// Judge reads off an attempt's end what it says about the effect
	// ([github.com/mcp-idem/mcp-idem/policy.Tool.Classify]). How the end is known
	// and the result are the gateway's to fill in. Not called where nothing was
	// sent. Safe for concurrent use.
	Judge func(End) idem.Outcome
}

// End is how an attempt ended on the wire. Exactly one of the first three is
// set.
type End struct {
	Result []byte // raw; null included
	Error  []byte // raw JSON-RPC error object
	Err    error  // no answer came that can be read; the request may have been carried out

	// With Err, over HTTP:
	NotSent    bool          // nothing of the request left
	Status     int           // of the response; 0: none
	RetryAfter time.Duration // as the server asked; negative: absurd
}
