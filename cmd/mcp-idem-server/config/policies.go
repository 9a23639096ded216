package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/reconcilers"
)

func (c *Config) policies(f *File) error {
	for i := range f.Policies {
		b := &builder{at: index("policies", i), given: &f.Policies[i], config: c, tool: policy.DefaultTool()}
		for _, step := range []func() error{b.what, b.identity, b.forward, b.times, b.retry, b.classify, b.reconcile, b.fits} {
			if err := step(); err != nil {
				return err
			}
		}
		c.tools = append(c.tools, b.tool)
		c.queries = append(c.queries, b.query)
	}
	return nil
}

// builder makes one entry of the policies.
type builder struct {
	at     string
	given  *Policy
	config *Config
	tool   policy.Tool
	query  *reconcilers.Tool
}

func (b *builder) what() error {
	p := b.given
	if err := policy.CheckMatch(p.Match); err != nil {
		return fail(b.at+".match", "%v", err)
	}
	b.tool.Match = p.Match
	b.tool.Effect, b.tool.Cancel, b.tool.Repeat = policy.Effect(p.Effect), or(policy.Cancel(p.Cancel), b.tool.Cancel), or(idem.Repeat(p.Repeat), b.tool.Repeat)
	b.tool.Operation = or(p.Operation, b.tool.Operation)
	b.tool.Process = p.State == "process"
	for _, err := range []error{
		oneOf(b.at+".effect", b.tool.Effect, policy.Effects()...),
		oneOf(b.at+".cancel", b.tool.Cancel, policy.Cancels()...),
		oneOf(b.at+".repeat", b.tool.Repeat, idem.RepeatOccurrence, idem.RepeatEachCall, idem.RepeatReplay, idem.RepeatRefuse),
		oneOf(b.at+".state", p.State, "durable", "process"),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) identity() (err error) {
	p := b.given
	if b.tool.Key, err = compile(b.at+".key", p.Key); err != nil {
		return err
	}
	if k := b.tool.Key; k != nil && k.Uses("$key", "$business_key", "$task", "$step", "$external_id") {
		return fail(b.at+".key", "a business key comes from the arguments alone; of the variables it may use $args")
	}
	if b.tool.Bind, err = paths(b.at+".bind", p.Bind); err != nil {
		return err
	}
	if b.tool.Ignore, err = paths(b.at+".ignore", p.Ignore); err != nil {
		return err
	}
	if p.Bind != nil && b.tool.Key == nil {
		return fail(b.at+".bind", "means something only beside key")
	}
	if p.Bind != nil && len(p.Bind) == 0 {
		return fail(b.at+".bind", "is empty; leave it out to bind all arguments but ignore")
	}
	b.tool.ID, err = compile(b.at+".id", p.ID)
	return err
}

// argumentName: a member of the arguments itself, not a path into them.
var argumentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// taken are names in _meta that mean something else.
var taken = []string{"progressToken", "traceparent", "tracestate", "baggage"}

func (b *builder) forward() error {
	f := b.given.Forward
	if f == nil {
		return nil
	}
	at := b.at + ".forward"
	switch {
	case f.Argument == "" && f.Meta == "" && f.Header == "":
		return fail(at, "names no place for the key; give argument, meta or, over HTTP, header")
	case f.Argument != "" && !argumentName.MatchString(f.Argument):
		return fail(at+".argument", "%q is no plain name of an argument, like external_reference", f.Argument)
	case slices.Contains(taken, f.Meta) || strings.ContainsAny(f.Meta, " \t\r\n"):
		return fail(at+".meta", "%q cannot carry the key; take a name of the upstream's own, like idempotencyKey", f.Meta)
	}
	if k := b.tool.Key; k != nil && f.Argument != "" {
		if p, plain := k.Path(); plain && len(p) > 0 && p[0] == f.Argument {
			return fail(at+".argument", "%q is what key reads; we would overwrite the business key", f.Argument)
		}
	}
	b.tool.Forward = policy.Forward{Argument: f.Argument, Meta: f.Meta, Header: f.Header}
	return b.header(at+".header", f)
}

// header: where no header is sent, the key would be missing outside, and a
// query for it would prove an absence that is none.
func (b *builder) header(at string, f *Forward) error {
	if f.Header == "" {
		return nil
	}
	if err := checkHeader(at, f.Header); err != nil {
		return err
	}
	if alone := f.Argument == "" && f.Meta == ""; !alone && (b.reaches(Transport.remote) != "" || b.reaches(Transport.child) == "") {
		return nil
	}
	if name := b.reaches(Transport.child); name != "" {
		return fail(at, "means nothing for a server that speaks stdio, as %s does, which match (%s) reaches; give argument or meta, or match the servers at a URL only", name, b.tool.Match)
	}
	return nil
}

// reaches is a server of the file that the entry may decide about, and whose
// transport is one of those; empty: there is none.
func (b *builder) reaches(one func(Transport) bool) string {
	for _, name := range slices.Sorted(maps.Keys(b.config.transports)) {
		if one(b.config.transports[name]) && policy.Reaches(b.tool.Match, name) {
			return name
		}
	}
	return ""
}

func (b *builder) times() error {
	p := b.given
	b.tool.Wait, b.tool.FailureTTL = p.Wait.or(b.tool.Wait), p.FailureTTL.or(b.tool.FailureTTL)
	b.tool.Timeout, b.tool.Retention = p.Timeout.or(0), p.Retention.or(0)
	if p.Timeout != nil && *p.Timeout == 0 {
		return fail(b.at+".timeout", "must be more than 0s; leave it out for none")
	}
	if p.Retention != nil {
		return b.config.keepsLongEnough(b.at+".retention", b.tool.Retention)
	}
	return nil
}

func (b *builder) retry() error {
	g := b.given.Retry
	if g == nil {
		return nil
	}
	r, at := &b.tool.Retry, b.at+".retry"
	if g.MaxAttempts != nil {
		r.MaxAttempts = *g.MaxAttempts
	}
	r.MaxElapsed = g.MaxElapsed.or(r.MaxElapsed)
	r.Initial = g.Initial.or(r.Initial)
	if r.Max = g.Max.or(r.Max); g.Max == nil {
		r.Max = max(r.Max, r.Initial)
	} else if g.Initial == nil {
		r.Initial = min(r.Initial, r.Max)
	}
	switch {
	case r.MaxAttempts < 1:
		return fail(at+".max_attempts", "%d is less than 1, which is the first attempt alone", r.MaxAttempts)
	case r.Initial == 0:
		return fail(at+".initial", "must be more than 0s")
	case r.Initial > r.Max:
		return fail(at+".initial", "%s is more than max (%s)", r.Initial, r.Max)
	}
	return nil
}

func (b *builder) classify() error {
	for i, g := range b.given.Classify {
		at := index(b.at+".classify", i)
		cond, err := required(at+".if", g.If)
		if err != nil {
			return err
		}
		class := idem.Class(g.Class)
		if class == "" || !slices.Contains(idem.Classes(), class) {
			return fail(at+".class", "%q is not one of %s", g.Class, list(idem.Classes()))
		}
		if class == idem.ClassNotSent && !g.Trust {
			return fail(at+".class", "not_sent of what may have left lets it be sent again; if you know that it had no effect, say trust: true")
		}
		b.tool.Rules = append(b.tool.Rules, policy.Rule{If: cond, Class: class, Trust: g.Trust})
	}
	return nil
}

// fits refuses what would mean nothing together.
func (b *builder) fits() error {
	if b.tool.Effect != policy.EffectRead {
		return nil
	}
	p := b.given
	for _, f := range []struct {
		name  string
		given bool
	}{{"key", p.Key != ""}, {"forward", p.Forward != nil}, {"reconcile", p.Reconcile != nil}, {"repeat", p.Repeat != ""}, {"state", p.State == "process"}} {
		if f.given {
			return fail(b.at+"."+f.name, "means nothing beside effect: read, which bypasses the ledger")
		}
	}
	return nil
}

func compile(path, text string) (*policy.JQ, error) {
	if text == "" {
		return nil, nil
	}
	q, err := policy.Compile(text)
	if err != nil {
		return nil, fail(path, "%v", err)
	}
	return q, nil
}

func required(path, text string) (*policy.JQ, error) {
	if text == "" {
		return nil, fail(path, "is missing")
	}
	return compile(path, text)
}

func paths(at string, texts []string) (out []idem.Path, err error) {
	for i, text := range texts {
		p, err := policy.ParsePath(text)
		if err != nil {
			return nil, fail(index(at, i), "%v", err)
		}
		out = append(out, p)
	}
	return out, nil
}

func or[T comparable](given, otherwise T) T {
	var zero T
	if given == zero {
		return otherwise
	}
	return given
}
