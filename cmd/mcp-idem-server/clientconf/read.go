package clientconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

// Client is what a client's configuration says of servers.
type Client struct {
	// Root is the member of the file that holds the servers, as the client's
	// documentation writes it: mcpServers, servers, or mcp.servers.
	Root string
	// Servers are those that the gateway can guard, by their names for it.
	Servers map[string]config.Server
	// Taken are the names of Servers in the client's file, sorted.
	Taken []string
	// Left says of the other servers, by their names in the client's file, why
	// they stay where they are.
	Left map[string]string
	// Variables are those that the values of Servers refer to. What the client
	// has to set them to in the environment of the gateway, in its own language;
	// empty: the client's own environment has them.
	Variables map[string]string
	EnvFile   string // of VS Code: the client reads it into the gateway's environment
	Notes     []string
}

// vscode: VS Code puts values of its own into the texts.
func (c *Client) vscode() bool { return c.Root != "mcpServers" }

// Read reads a client's configuration.
func Read(text []byte) (*Client, error) {
	plain, err := hujson.Standardize(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(plain, &top); err != nil {
		return nil, errors.New("is no JSON object")
	}
	c := &Client{Servers: map[string]config.Server{}, Left: map[string]string{}, Variables: map[string]string{}}
	c.projects(top)
	given, err := c.find(top)
	if err != nil && len(c.Left) > 0 {
		c.Root = "projects"
		return nil, c.nothing()
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		before := *c
		before.Variables = maps.Clone(c.Variables)
		if err := c.server(name, given[name]); err != nil {
			*c = before // what it noted and refers to goes with it
			c.Left[name] = err.Error()
		}
	}
	if len(c.Servers) == 0 {
		return nil, c.nothing()
	}
	c.rename()
	return c, nil
}

// projects notes the servers that Claude Code keeps for single directories: they
// are not all its client starts, and their place is not one for our entry.
func (c *Client) projects(top map[string]json.RawMessage) {
	var all map[string]struct {
		Servers map[string]json.RawMessage `json:"mcpServers"`
	}
	if json.Unmarshal(top["projects"], &all) != nil {
		return
	}
	for dir, p := range all {
		for name := range p.Servers {
			c.Left["projects."+dir+".mcpServers."+name] = "it is of that directory only; copy its mcpServers into a file of their own and use --from on that"
		}
	}
}

// find takes the map of servers from where the clients keep it.
func (c *Client) find(top map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	read := func(root string, raw json.RawMessage) (map[string]json.RawMessage, error) {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("%s is no object", root)
		}
		c.Root = root
		return m, nil
	}
	if raw, ok := top["mcpServers"]; ok {
		return read("mcpServers", raw)
	}
	if raw, ok := top["servers"]; ok {
		return read("servers", raw)
	}
	var mcp map[string]json.RawMessage
	if raw, ok := top["mcp"]; ok && json.Unmarshal(raw, &mcp) == nil && mcp["servers"] != nil {
		return read("mcp.servers", mcp["servers"])
	}
	return nil, errors.New("names no servers; want mcpServers (Claude Desktop, Claude Code, Cursor and others) or servers (VS Code)")
}

// nothing is the error of a file without a server for the gateway.
func (c *Client) nothing() error {
	if len(c.Left) == 0 {
		return fmt.Errorf("%s is empty: there is no server to guard", c.Root)
	}
	var why []string
	for _, name := range slices.Sorted(maps.Keys(c.Left)) {
		why = append(why, fmt.Sprintf("%q: %s", name, c.Left[name]))
	}
	return fmt.Errorf("no server of %s can be guarded: %s", c.Root, strings.Join(why, "; "))
}

func (c *Client) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// server takes one server over, or says why it is left.
func (c *Client) server(name string, raw json.RawMessage) error {
	e, err := c.entry(name, raw)
	if err != nil {
		return err
	}
	if base := strings.TrimSuffix(filepath.Base(e.Command), ".exe"); base == "mcp-idem-server" {
		return errors.New("it is guarded already")
	}
	check := e
	if strings.Contains(check.URL, "${") { // not known yet
		check.URL = "http://variable"
	}
	if err := (&config.File{MCPServers: map[string]config.Server{"server": check}}).Check(); err != nil {
		if bad, ok := errors.AsType[*config.Error](err); ok {
			return fmt.Errorf("%s %s", strings.TrimPrefix(bad.Path, "mcpServers.server."), bad.Text)
		}
		return err
	}
	c.Servers[name] = e
	c.Taken = append(c.Taken, name)
	return nil
}

// rename gives names that fit to the servers: operations belong to them, and
// with several the tools' names begin with them.
func (c *Client) rename() {
	servers := map[string]config.Server{}
	for _, name := range c.Taken {
		fit := strings.Map(func(r rune) rune {
			if r < 0x80 && (r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' || r == '_') {
				return r
			}
			return '_'
		}, name)
		if fit == "" {
			fit = "server"
		}
		free := fit
		for n := 2; ; n++ {
			_, used := servers[free]
			_, meant := c.Servers[free]
			if !used && (free == name || !meant) {
				break
			}
			free = fmt.Sprintf("%s_%d", fit, n)
		}
		if free != name {
			c.note("%q is called %s: a server's name goes before those of its tools, where only letters, digits, _ and - are allowed", name, free)
		}
		servers[free] = c.Servers[name]
	}
	c.Servers = servers
}
