package mcp

import (
	"context"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
)

// DefaultIdentity are the sources that count where nothing is configured.
func DefaultIdentity() Identity {
	return Identity{
		Task:       []string{"_meta.mcp-idem/task", "header.Mcp-Idem-Task", "_meta.threadId", "_meta.openai/session", "_meta.vscode.conversationId", "env.CLAUDE_CODE_SESSION_ID", "flag"},
		Run:        []string{"_meta.mcp-idem/run", "header.Mcp-Idem-Run", "flag"},
		Step:       []string{"_meta.mcp-idem/step", "header.Mcp-Idem-Step"},
		Key:        []string{"_meta.mcp-idem/key"},
		GenericKey: []string{"_meta.idempotencyKey", "params.idempotencyKey", "header.Idempotency-Key"},
		Alias:      []string{"_meta.claudecode/toolUseId", "_meta.callId"},
	}
}

// PolicyOf is a set of policies as a gateway or a middleware asks for them.
func PolicyOf(set *policy.Set) Policy { return policies{set} }

type policies struct{ set *policy.Set }

func (p policies) Tool(name string) Tool {
	t := p.set.Tool(name)
	return Tool{
		Effect: t.Effect, Process: t.Process, ForwardCancel: t.Cancel == policy.CancelForward,
		Argument: t.Forward.Argument, Meta: t.Forward.Meta, Header: t.Forward.Header,
		Judge: func(e End) idem.Outcome {
			return t.Classify(context.Background(), policy.Facts{Result: e.Result, RPCError: e.Error, Err: e.Err, Sent: !e.NotSent, HTTPStatus: e.Status, RetryAfter: e.RetryAfter})
		},
	}
}

// ThisProcess tells who this process is, and what became of others on this
// machine: [idem.Config] wants both. The error is the system's, where it cannot
// tell processes apart.
func ThisProcess() (idem.Owner, idem.Processes, error) {
	s, err := proc.New()
	if err != nil {
		return idem.Owner{}, nil, err
	}
	return s.Self(), s, nil
}
