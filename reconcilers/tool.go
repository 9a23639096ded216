package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// Call calls a tool of the upstream that an operation was made by
// (q.Record.Server; with state: process, of the very process: q.Record.Incarnation),
// past the guard, and returns its raw result. A JSON-RPC error is an error. It must
// be safe for concurrent use.
type Call func(ctx context.Context, q idem.Lookup, tool string, args []byte) (result []byte, err error)

// Tool asks with a tool of the operation's own upstream.
type Tool struct {
	Call      Call
	Name      string     // of the tool, without the server
	Arguments *policy.JQ // gives the arguments, an object; nil: {}
	// Found gives what identifies each match, out of the query's result: values
	// or one array of them; nulls do not count. See [policy.Identifier].
	Found *policy.JQ
	// Result gives what a replay returns, out of the query's result. nil: that
	// result itself, byte for byte.
	Result *policy.JQ
	// BusinessKey is the policy's key, for $business_key with its own type; nil:
	// it is the key's text.
	BusinessKey *policy.JQ
}

// ToolName is the name of the tool that is asked, without the server.
func (t *Tool) ToolName() string { return t.Name }

// Query implements [idem.Reconciler].
func (t *Tool) Query(ctx context.Context, q idem.Lookup) (idem.Finding, error) {
	finding, err := t.query(ctx, q)
	if err != nil {
		return idem.Finding{}, fmt.Errorf("asking %s: %w", t.Name, err)
	}
	return finding, nil
}

func (t *Tool) query(ctx context.Context, q idem.Lookup) (idem.Finding, error) {
	vars, err := t.vars(q)
	if err != nil {
		return idem.Finding{}, err
	}
	args, err := t.arguments(ctx, vars)
	if err != nil {
		return idem.Finding{}, err
	}
	raw, err := t.Call(ctx, q, t.Name, args)
	if err != nil {
		return idem.Finding{}, err
	}
	read, err := policy.ReadResult(raw)
	switch {
	case err != nil:
		return idem.Finding{}, err
	case read.Interim:
		return idem.Finding{}, errors.New("it wants input")
	case read.IsError:
		return idem.Finding{}, fmt.Errorf("it failed: %.200s", read.Text)
	}
	result, err := policy.Decode(raw)
	if err != nil {
		return idem.Finding{}, err
	}
	view, err := idem.Canonical(args)
	if err != nil {
		return idem.Finding{}, err
	}
	f := idem.Finding{View: t.Name + " " + string(view)}
	if f.IDs, err = t.found(ctx, result, vars); err == nil && len(f.IDs) > 0 {
		f.Result, err = t.result(ctx, raw, result, vars)
	}
	return f, err
}

func (t *Tool) vars(q idem.Lookup) (policy.Vars, error) {
	v := policy.Vars{Key: q.Key, Task: q.Record.Task, Step: q.Record.Step, ExternalID: q.Record.ExternalID}
	if q.Record.Args != nil {
		var err error
		if v.Args, err = policy.Decode(q.Record.Args); err != nil {
			return v, fmt.Errorf("the operation's arguments: %w", err)
		}
	}
	if q.BusinessKey != "" {
		v.BusinessKey = q.BusinessKey
		if t.BusinessKey != nil {
			if v.BusinessKey = t.BusinessKey.KeyValue(q.Record.Args); v.BusinessKey == nil {
				return v, errors.New("the operation's arguments no longer have the business key")
			}
		}
	}
	return v, nil
}

func (t *Tool) arguments(ctx context.Context, vars policy.Vars) ([]byte, error) {
	if t.Arguments == nil {
		return []byte("{}"), nil
	}
	v, err := t.Arguments.One(ctx, nil, vars)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, fmt.Errorf("arguments %s give no object", t.Arguments)
	}
	return policy.Encode(v)
}

// found returns the identifiers of the matches, each once.
func (t *Tool) found(ctx context.Context, result any, vars policy.Vars) ([]string, error) {
	values, err := t.Found.Values(ctx, result, vars)
	if err != nil {
		return nil, err
	}
	if len(values) == 1 {
		if list, ok := values[0].([]any); ok {
			values = list
		}
	}
	var ids []string
	for _, v := range values {
		if v == nil {
			continue
		}
		id, err := policy.Identifier(v)
		if err != nil {
			return nil, fmt.Errorf("found %s: %w", t.Found, err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// result returns what a replay returns: a tool's result in any case.
func (t *Tool) result(ctx context.Context, raw []byte, result any, vars policy.Vars) ([]byte, error) {
	if t.Result == nil {
		return raw, nil
	}
	if p, ok := t.Result.Path(); ok && len(p) == 0 {
		return raw, nil
	}
	v, err := t.Result.One(ctx, result, vars)
	if err != nil {
		return nil, err
	}
	out, err := policy.Encode(v)
	if err != nil {
		return nil, err
	}
	if r, err := policy.ReadResult(out); err == nil && !r.Interim {
		return out, nil
	}
	return wrap(v, out)
}

// wrap makes a tool's result of any value.
func wrap(v any, raw []byte) ([]byte, error) {
	text, ok := v.(string)
	if !ok {
		text = string(raw)
	}
	r := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	if _, ok := v.(map[string]any); ok {
		r["structuredContent"] = v
	}
	return policy.Encode(r)
}
