package clientconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

// entry reads one server. Fields that are not known are noted by name.
func (c *Client) entry(name string, raw json.RawMessage) (config.Server, error) {
	var s config.Server
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return s, errors.New("it is no object")
	}
	into := map[string]any{"type": &s.Type, "command": &s.Command, "args": &s.Args, "cwd": &s.Cwd, "url": &s.URL, "serverUrl": &s.URL, "headers": &s.Headers, "disabled": &s.Disabled}
	var unknown []string
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		switch to, known := into[field]; {
		case field == "env":
			if err := c.env(name, fields[field], &s); err != nil {
				return s, err
			}
		case field == "envFile":
			if err := c.envFile(fields[field]); err != nil {
				return s, err
			}
		case !known:
			unknown = append(unknown, field)
		default:
			if err := json.Unmarshal(fields[field], to); err != nil {
				return s, fmt.Errorf("its %s is of the wrong type", field)
			}
		}
	}
	if len(unknown) > 0 {
		c.note("%q: what its fields %s say has no place in the gateway's file", name, quoted(unknown))
	}
	if s.Type == "stdio" {
		s.Type = ""
	}
	if s.URL != "" && s.Type == "" {
		s.Type = "http"
	}
	for _, text := range []*string{&s.Command, &s.Cwd, &s.URL} {
		*text = c.variables(name, *text)
	}
	for i := range s.Args {
		s.Args[i] = c.variables(name, s.Args[i])
	}
	for _, m := range []map[string]string{s.Env, s.Headers} {
		for k := range m {
			m[k] = c.variables(name, m[k])
		}
	}
	return s, nil
}

// env: some clients allow numbers, and null for what is to be unset.
func (c *Client) env(name string, raw json.RawMessage, s *config.Server) error {
	var env map[string]json.RawMessage
	if err := json.Unmarshal(raw, &env); err != nil {
		return errors.New("its env is of the wrong type")
	}
	s.Env = map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		var text string
		switch raw := string(env[k]); {
		case json.Unmarshal(env[k], &text) == nil && raw != "null":
			s.Env[k] = text
		case raw == "null":
			c.note("%q: %s is to be unset in its environment, which the gateway cannot do", name, k)
		case raw[0] == '{' || raw[0] == '[':
			return fmt.Errorf("its env.%s is of the wrong type", k)
		default:
			s.Env[k] = raw
		}
	}
	return nil
}

func (c *Client) envFile(raw json.RawMessage) error {
	var file string
	if err := json.Unmarshal(raw, &file); err != nil {
		return errors.New("its envFile is of the wrong type")
	}
	if c.EnvFile != "" && c.EnvFile != file {
		return errors.New("another server has another envFile, and the gateway's servers share its environment; put what is in it into env")
	}
	c.EnvFile = file
	return nil
}

var (
	reference = regexp.MustCompile(`\$\{([^{}]*)\}`)
	variable  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	unfit     = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// variables turns a client's references into ours, which are variables of the
// gateway's environment.
func (c *Client) variables(server, text string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		inside := ref[2 : len(ref)-1]
		plain, _, fallback := strings.Cut(inside, ":-")
		switch {
		case c.vscode():
			name := variableFor(inside)
			c.Variables[name] = ref
			return "${" + name + "}"
		case variable.MatchString(inside):
			c.Variables[inside] = ""
			return ref
		case fallback && variable.MatchString(plain):
			c.Variables[plain] = ""
			c.note("%q: %s has a default in the client's file and none in the gateway's: set it where the gateway runs, or write the value in", server, plain)
			return "${" + plain + "}"
		case strings.HasPrefix(inside, "env:") && variable.MatchString(inside[4:]): // Cursor, Windsurf
			c.Variables[inside[4:]] = ""
			return "${" + inside[4:] + "}"
		}
		c.note("%q: ${%s} is the client's language; write out what it stands for", server, inside)
		return ref
	})
}

// variableFor is the name of a variable for what VS Code calls input:token,
// env:NAME or workspaceFolder.
func variableFor(ref string) string {
	if name, ok := strings.CutPrefix(ref, "env:"); ok && variable.MatchString(name) {
		return name
	}
	name := strings.ToUpper(strings.Trim(unfit.ReplaceAllString(strings.TrimPrefix(ref, "input:"), "_"), "_"))
	return "VSCODE_" + name
}

func quoted(names []string) string {
	var q []string
	for _, n := range names {
		q = append(q, fmt.Sprintf("%q", n))
	}
	return strings.Join(q, ", ")
}
