package config

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of place that an identity is read from.
type Kind string

const (
	KindMeta   Kind = "_meta"  // a member of the request's _meta
	KindParams Kind = "params" // a member of the request's params
	KindHeader Kind = "header" // an HTTP header
	KindEnv    Kind = "env"    // a variable of the server's environment
	KindFlag   Kind = "flag"   // the command line
)

// Source is one place: _meta.threadId is {KindMeta, "threadId"}.
type Source struct {
	Kind Kind
	Name string // empty for KindFlag
}

// String is the source as a file names it.
func (s Source) String() string {
	if s.Name == "" {
		return string(s.Kind)
	}
	return string(s.Kind) + "." + s.Name
}

// Sources are the places in order; the first that has a value counts.
type Sources struct {
	Task, Run, Step, Key, GenericKey, Alias []Source
	// NewRun: a new connection begins a new run of the agent.
	NewRun bool
}

func defaultIdentity() Identity {
	return Identity{
		Task:       []string{"_meta.mcp-idem/task", "header.Mcp-Idem-Task", "_meta.threadId", "_meta.openai/session", "_meta.vscode.conversationId", "env.CLAUDE_CODE_SESSION_ID", "flag"},
		Run:        []string{"_meta.mcp-idem/run", "header.Mcp-Idem-Run", "flag"},
		Step:       []string{"_meta.mcp-idem/step", "header.Mcp-Idem-Step"},
		Key:        []string{"_meta.mcp-idem/key"},
		GenericKey: []string{"_meta.idempotencyKey", "params.idempotencyKey", "header.Idempotency-Key"},
		Alias:      []string{"_meta.claudecode/toolUseId", "_meta.callId"},
	}
}

func (c *Config) identity(f *File) error {
	given, def := f.Identity, defaultIdentity()
	perAsk := []Kind{KindMeta, KindParams, KindHeader}
	perProcess := []Kind{KindMeta, KindParams, KindHeader, KindEnv, KindFlag}
	for _, l := range []struct {
		name       string
		given, def []string
		kinds      []Kind
		into       *[]Source
	}{
		{"task", given.Task, def.Task, perProcess, &c.Identity.Task},
		{"run", given.Run, def.Run, perProcess, &c.Identity.Run},
		{"step", given.Step, def.Step, perAsk, &c.Identity.Step},
		{"key", given.Key, def.Key, perAsk, &c.Identity.Key},
		{"generic_key", given.GenericKey, def.GenericKey, perAsk, &c.Identity.GenericKey},
		{"alias", given.Alias, def.Alias, perAsk, &c.Identity.Alias},
	} {
		texts := l.given
		if texts == nil { // an empty list means: no source at all
			texts = l.def
		}
		for i, text := range texts {
			s, err := parseSource(text, l.kinds)
			if err != nil {
				return fail(index("identity."+l.name, i), "%v", err)
			}
			*l.into = append(*l.into, s)
		}
	}
	if err := oneOf("identity.new_run", given.NewRun, "explicit", "connection"); err != nil {
		return err
	}
	c.Identity.NewRun = given.NewRun == "connection"
	return nil
}

func parseSource(text string, kinds []Kind) (Source, error) {
	kind, name, _ := strings.Cut(text, ".")
	s := Source{Kind(kind), name}
	if !slices.Contains(kinds, s.Kind) || (name == "") != (s.Kind == KindFlag) {
		var allowed []string
		for _, k := range kinds {
			if k != KindFlag {
				k += ".NAME"
			}
			allowed = append(allowed, string(k))
		}
		return s, fmt.Errorf("%q is no source here; allowed are %s", text, strings.Join(allowed, ", "))
	}
	return s, nil
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
