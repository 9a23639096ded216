package policy

import (
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// Effect is what a tool does to the world.
type Effect string

const (
	// EffectWrite: guarded, never sent again on an unknown outcome.
	EffectWrite Effect = "write"
	// EffectRead: bypasses the ledger.
	EffectRead Effect = "read"
	// EffectIdempotent: guarded, and sent again on an unknown outcome.
	EffectIdempotent Effect = "idempotent"
)

// Effects lists the effects that an entry may name.
func Effects() []Effect { return []Effect{EffectWrite, EffectRead, EffectIdempotent} }

// Cancel is what a client's cancellation does to a running attempt.
type Cancel string

const (
	CancelDetach  Cancel = "detach"  // the attempt runs on and is recorded
	CancelForward Cancel = "forward" // and the upstream is told
)

// Cancels lists the values of Cancel.
func Cancels() []Cancel { return []Cancel{CancelDetach, CancelForward} }

// Forward says where in a request the key is sent outside; empty: not there.
type Forward struct {
	Argument string // name of an argument
	Meta     string // name of a member of _meta
	Header   string // name of an HTTP header
}

// Tool is one entry of the policies. Start from [DefaultTool]: the zero values
// are not the defaults. It must not be changed once it is in a Set.
type Tool struct {
	Match     string // glob over server/tool
	Effect    Effect // empty: write, unless a trusted hint says read
	Operation string
	Key       *JQ // business key; nil: none
	Bind      []idem.Path
	Ignore    []idem.Path
	ID        *JQ // external object id of a direct success; nil: none
	Forward   Forward
	Timeout   time.Duration // 0: none
	Wait      time.Duration
	Cancel    Cancel
	Repeat    idem.Repeat
	Retry     Retry
	Rules     []Rule // before the table, the first that matches decides
	Process   bool   // state: process
	// Query says how unknown outcomes are settled; nil: by a person.
	Query      *idem.QueryRules
	FailureTTL time.Duration
	Retention  time.Duration // 0: the Set's
}

// DefaultTool returns the defaults where an entry is silent (CONFIG: defaults).
func DefaultTool() Tool {
	return Tool{
		Match: "**", Operation: "call", Wait: 20 * time.Second, Cancel: CancelDetach, Repeat: idem.RepeatOccurrence,
		Retry: DefaultRetry(), FailureTTL: 10 * time.Minute,
	}
}

// Defaults of a query. Settle over HTTP has to cover the tool's longest run,
// since nothing proves that an attempt has ended.
const (
	DefaultSettle     = 5 * time.Second
	DefaultSettleHTTP = time.Minute
	DefaultEvery      = 5 * time.Second
	DefaultGiveUp     = 10 * time.Minute
)

// QueryTool is the name of the tool that unknown outcomes are settled with; empty
// where something else asks, or nothing does.
func (t *Tool) QueryTool() string {
	if t.Query == nil {
		return ""
	}
	if q, ok := t.Query.Reconciler.(interface{ ToolName() string }); ok {
		return q.ToolName()
	}
	return ""
}

// rules are the entry's rules for the guard.
func (t *Tool) rules(c *Config) idem.Rules {
	r := idem.Rules{
		Operation: t.Operation, Repeat: t.Repeat, Timeout: t.Timeout, Wait: t.Wait, Lease: c.Lease,
		Bind: t.Bind, Ignore: t.Ignore,
		Retry: t.Retry.Schedule(c.Random), Resend: t.Effect == EffectIdempotent, Process: t.Process, Query: t.Query,
		FailureTTL: t.FailureTTL, Retention: c.Retention, OccurrenceRetention: c.OccurrenceRetention, ResultLimit: c.ResultLimit,
	}
	if t.Key != nil {
		r.Key = t.Key.BusinessKey
	}
	if t.Forward.Argument != "" {
		r.Fills = idem.Path{t.Forward.Argument}
	}
	if t.Retention != 0 {
		r.Retention = t.Retention
	}
	return r
}
