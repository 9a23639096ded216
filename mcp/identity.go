package mcp

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/mcp-idem/mcp-idem"
)

// Identity says where the identity of an ask is read from: per member the
// sources in their order, as the configuration names them. "_meta.X" and
// "params.X" name one member X, whatever dots and slashes it holds; "env.X" is
// this process's environment, which says nothing of a client over HTTP;
// "header.X" is a header of the client's HTTP request; "flag" is the value given
// at the start.
type Identity struct {
	Task       []string
	Run        []string
	Step       []string
	Key        []string
	GenericKey []string
	Alias      []string

	NewRunPerConnection bool // new_run: connection

	FlagTask string // --task
	FlagRun  string // --run
}

// source is one place to look.
type source struct {
	kind string // _meta, params, header, env, or empty for a constant
	name string // the member, quoted as scanners report it; the header; or the constant
}

// identity is an Identity made ready.
type identity struct {
	task, run, step, key, generic, alias []source

	anyTask string // where no source knows one
}

func compile(in Identity) (*identity, error) {
	id := &identity{anyTask: "stdio-" + newID()}
	for _, c := range []struct {
		what    string
		sources []string
		flag    string
		to      *[]source
	}{
		{"task", in.Task, in.FlagTask, &id.task}, {"run", in.Run, in.FlagRun, &id.run}, {"step", in.Step, "", &id.step},
		{"key", in.Key, "", &id.key}, {"generic_key", in.GenericKey, "", &id.generic}, {"alias", in.Alias, "", &id.alias},
	} {
		for i, text := range c.sources {
			kind, name, _ := strings.Cut(text, ".")
			s := source{kind: kind, name: `"` + name + `"`}
			switch {
			case text == "flag":
				s = source{name: c.flag}
			case kind == "env" && name != "":
				s = source{kind: kind, name: os.Getenv(name)}
			case kind == "header" && name != "":
				s.name = name
			case (kind == "_meta" || kind == "params") && name != "":
			default:
				return nil, fmt.Errorf("identity.%s[%d]: %q is none of _meta.NAME, params.NAME, header.NAME, env.NAME, flag", c.what, i, text)
			}
			*c.to = append(*c.to, s)
		}
	}
	return id, nil
}

// names are the members of one object and their raw values.
type names map[string][]byte

// place is where the identity of a call is looked for.
type place struct {
	params, meta names
	head         http.Header
}

// raw is the value at a source; nil: none.
func (s source) raw(in place) []byte {
	switch s.kind {
	case "_meta":
		return in.meta[s.name]
	case "params":
		return in.params[s.name]
	case "header":
		if v := in.head.Get(s.name); v != "" {
			return quote(v)
		}
	}
	return nil
}

// text is the first source that has a text or a number; others are skipped.
func text(sources []source, who caller, in place) string {
	for _, s := range sources {
		if s.kind == "" || s.kind == "env" {
			if s.name != "" && (s.kind == "" || !who.http) {
				return s.name
			}
			continue
		}
		if t, ok := plain(s.raw(in)); ok && t != "" {
			return t
		}
	}
	return ""
}

// plain is a string's text, or a number as it was written.
func plain(raw []byte) (string, bool) {
	switch {
	case len(raw) == 0:
		return "", false
	case raw[0] == '"':
		t, err := unquote(raw)
		return t, err == nil
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		return string(raw), true
	}
	return "", false
}

// keyText is the first source that has anything. A key that is no proper key is
// refused rather than skipped: its sender relies on it.
func keyText(what string, sources []source, in place) (string, error) {
	for _, s := range sources {
		raw := s.raw(in)
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		t, err := unquote(raw)
		if raw[0] != '"' || err != nil || !printable(t) {
			return "", &idem.Error{Code: idem.CodeInvalidArguments,
				Text: fmt.Sprintf("The %s must be 1 to 255 printable ASCII characters. Nothing was sent.", what)}
		}
		return t, nil
	}
	return "", nil
}

func printable(key string) bool {
	if key == "" || len(key) > 255 {
		return false
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return false
		}
	}
	return true
}

// fill reads the identity of a call into its ask.
func (id *identity) fill(ask *idem.Ask, who caller, in place) (err error) {
	if ask.Task = text(id.task, who, in); ask.Task == "" {
		ask.Task = who.task
	}
	if run := text(id.run, who, in); run != "" {
		ask.Run = run
	}
	ask.Step = text(id.step, who, in)
	if ask.HostKey, err = keyText("key", id.key, in); err != nil {
		return err
	}
	if ask.Generic, err = keyText("idempotency key", id.generic, in); err != nil {
		return err
	}
	for _, s := range id.alias {
		if t, ok := plain(s.raw(in)); ok && t != "" {
			ask.Aliases = append(ask.Aliases, t)
		}
	}
	return nil
}
