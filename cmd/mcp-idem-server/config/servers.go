package config

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-idem/mcp-idem/policy"
)

// Transport is how a server is spoken to.
type Transport string

const (
	TransportStdio Transport = "stdio" // a child process
	TransportHTTP  Transport = "http"  // streamable HTTP
	TransportSSE   Transport = "sse"   // HTTP with server-sent events, of protocol 2024-11-05
)

func (t Transport) child() bool  { return t == TransportStdio }
func (t Transport) remote() bool { return t != TransportStdio }

// transports are the names that a file may give to them.
var transports = map[string]Transport{"stdio": TransportStdio, "http": TransportHTTP, "streamable-http": TransportHTTP, "streamableHttp": TransportHTTP, "sse": TransportSSE}

// Upstream is an MCP server to guard.
type Upstream struct {
	Name string
	Type Transport

	Command string // of TransportStdio, as the four below
	Args    []string
	Env     []string // NAME=value, sorted, beside the environment that is inherited
	Dir     string   // empty: the current one

	URL     string            // of the others; its query may hold a secret
	Headers map[string]string // of every request, by their canonical names; secrets

	Allow []string // globs over tool names; nil: all
	Deny  []string // globs over tool names
}

// Allows reports whether a tool, by the server's own name for it, is offered
// and may be called.
func (u *Upstream) Allows(tool string) bool {
	matches := func(glob string) bool { return policy.Matches(glob, tool) }
	return !slices.ContainsFunc(u.Deny, matches) && (u.Allow == nil || slices.ContainsFunc(u.Allow, matches))
}

// Names is how the tools of the upstreams are named to clients.
type Names string

const (
	NamesAuto   Names = "auto"   // plain for one upstream, prefix for several
	NamesPrefix Names = "prefix" // server__tool
	NamesPlain  Names = "plain"  // as the upstream has it
)

// Reached lists the servers of the file, those that are disabled too, that a
// policy's match can speak of.
func (c *Config) Reached(match string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.transports)) {
		if policy.Reaches(match, name) {
			names = append(names, name)
		}
	}
	return names
}

// prefixable is what all clients, and models, take in a tool's name.
var prefixable = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Prefixed reports whether clients see server__tool.
func (c *Config) Prefixed() bool {
	return c.Names == NamesPrefix || (c.Names == NamesAuto && len(c.Upstreams) > 1)
}

func (c *Config) servers(f *File) error {
	c.transports = map[string]Transport{}
	names := slices.Sorted(maps.Keys(f.MCPServers))
	for _, name := range names {
		at := join("mcpServers", name)
		if err := checkName(name); err != nil {
			return fail(at, "%v", err)
		}
		s := f.MCPServers[name]
		up, err := s.upstream(at, name)
		if err != nil {
			return err
		}
		c.transports[name] = up.Type
		if !s.Disabled {
			c.Upstreams = append(c.Upstreams, up)
		}
	}
	c.Names = or(Names(f.Names), NamesAuto)
	if err := oneOf("names", c.Names, NamesAuto, NamesPrefix, NamesPlain); err != nil {
		return err
	}
	for _, u := range c.Upstreams {
		if c.Prefixed() && !prefixable.MatchString(u.Name) {
			return fail(join("mcpServers", u.Name), "the name is put before those of its tools (%s__tool), where only letters, digits, _ and - are allowed; rename it, or set names: plain", u.Name)
		}
		for _, other := range c.Upstreams {
			if c.Prefixed() && strings.HasPrefix(u.Name, other.Name+"__") {
				return fail(join("mcpServers", u.Name), "begins with %s__, as the tools of %s do, from which its own could not be told; rename it, or set names: plain", other.Name, other.Name)
			}
		}
	}
	for i, name := range f.TrustHints {
		if !slices.Contains(names, name) {
			return fail(index("trust_hints", i), "%q is not one of mcpServers (%s)", name, list(names))
		}
	}
	return nil
}

func (s *Server) upstream(at, name string) (Upstream, error) {
	up := Upstream{Name: name, Type: transports[s.Type], Allow: s.Allow, Deny: s.Deny}
	switch {
	case s.Type == "" && s.Command == "" && s.URL != "": // as some clients write it
		up.Type = TransportHTTP
	case s.Type == "":
		up.Type = TransportStdio
	case up.Type == "":
		return up, fail(at+".type", "%q is not one of stdio, http (or streamable-http, streamableHttp), sse", s.Type)
	}
	if err := s.globs(at, name); err != nil {
		return up, err
	}
	if up.Type == TransportStdio {
		return up, s.process(at, &up)
	}
	return up, s.remote(at, &up)
}

func (s *Server) globs(at, name string) error {
	for _, l := range []struct {
		name  string
		globs []string
	}{{"allow", s.Allow}, {"deny", s.Deny}} {
		if l.name == "allow" && l.globs != nil && len(l.globs) == 0 {
			return fail(at+".allow", "is empty, which allows no tool; leave it out for all, or say disabled: true")
		}
		for i, g := range l.globs {
			switch {
			case g == "":
				return fail(index(at+"."+l.name, i), "is empty; write a tool's name, with * for any characters")
			case strings.HasPrefix(g, name+"/"):
				return fail(index(at+"."+l.name, i), "%q: write the tool's name without the server's", g)
			}
		}
	}
	return nil
}

func (s *Server) process(at string, up *Upstream) error {
	for _, f := range []struct {
		name  string
		given bool
	}{{"url", s.URL != ""}, {"headers", s.Headers != nil}} {
		if f.given {
			return fail(at+"."+f.name, "means nothing for a server that is started as a command; for one at a URL say type: http, without command")
		}
	}
	if s.Command == "" {
		return fail(at+".command", "is missing; it is the program to start (or give url, for a server that is reached over HTTP)")
	}
	up.Command, up.Args, up.Dir = s.Command, s.Args, s.Cwd
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		up.Env = append(up.Env, k+"="+s.Env[k])
	}
	return nil
}

func (s *Server) remote(at string, up *Upstream) error {
	for _, f := range []struct {
		name  string
		given bool
	}{{"command", s.Command != ""}, {"args", s.Args != nil}, {"env", s.Env != nil}, {"cwd", s.Cwd != ""}} {
		if f.given {
			return fail(at+"."+f.name, "means nothing for a server that is reached at a URL; for one that is started as a command leave type and url out")
		}
	}
	if s.URL == "" {
		return fail(at+".url", "is missing; it is where the server is, like http://127.0.0.1:9000/mcp")
	}
	u, err := url.Parse(s.URL) // its error would show the whole, which may hold a secret
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return fail(at+".url", "is no URL like https://host/mcp")
	case u.User != nil:
		return fail(at+".url", `holds a user or password; send it as a header: "headers": {"Authorization": "Basic ${NAME}"}`)
	case u.Fragment != "":
		return fail(at+".url", "has a fragment (#…), which is never sent")
	}
	up.URL = s.URL
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		path := join(at+".headers", name)
		if err := checkHeader(path, name); err != nil {
			return err
		}
		if strings.ContainsFunc(s.Headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return fail(path, "holds a character that no header may hold, a line break for instance")
		}
		canonical := http.CanonicalHeaderKey(name)
		if _, twice := up.Headers[canonical]; twice {
			return fail(path, "comes twice: the case of a header's name makes no difference")
		}
		if up.Headers == nil {
			up.Headers = map[string]string{}
		}
		up.Headers[canonical] = s.Headers[name]
	}
	return nil
}

// ownHeaders are set by the transport.
var ownHeaders = []string{"Accept", "Connection", "Content-Length", "Content-Type", "Host", "Last-Event-Id", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version",
	"Mcp-Session-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// headerName is a token of RFC 9110, section 5.6.2.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func checkHeader(at, name string) error {
	switch {
	case !headerName.MatchString(name):
		return fail(at, "%q is no name of a header", name)
	case slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)):
		return fail(at, "%q is set by the transport itself; leave it out", name)
	}
	return nil
}
