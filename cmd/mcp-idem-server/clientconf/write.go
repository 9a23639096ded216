package clientconf

import (
	"bytes"
	_ "embed" // the starting configuration
	"encoding/json"
	"maps"
	"slices"
)

// Starting is a configuration to begin with, commented.
//
//go:embed start.jsonc
var starting []byte

// Starting returns a commented configuration to begin with.
func Starting() []byte { return bytes.Clone(starting) }

// head and tail are around the servers of a file that was made from a client's.
const (
	head = `// What an editor needs to complete this file: mcp-idem-server schema >mcp-idem.schema.json,
// and here the line "$schema": "./mcp-idem.schema.json".
{
  "mcpServers": `
	tail = `,
  // What holds for which tool. What no entry matches is guarded, and an outcome
  // that nobody can know waits for a person. For proposals:
  //   mcp-idem-server doctor --suggest --config THIS_FILE
  "policies": []
}
`
)

// File is the gateway's file with the servers. It holds what the client's held,
// secrets too.
func (c *Client) File() ([]byte, error) {
	servers, err := indented(c.Servers, "  ")
	if err != nil {
		return nil, err
	}
	return append(append([]byte(head), servers...), tail...), nil
}

// Entry is what goes into the client's file in the place of Taken: its name
// there, and the server. One server keeps its name, so that its tools do. It
// holds no value of the client's file, only references in its language.
func (c *Client) Entry(command, file string) (name string, entry map[string]any) {
	name = "mcp-idem"
	if len(c.Taken) == 1 {
		name = c.Taken[0]
	}
	for n := c.Left[name]; n != ""; n = c.Left[name] {
		name += "-gateway"
	}
	entry = map[string]any{"command": command, "args": []string{"--config", file}}
	if c.vscode() {
		entry["type"] = "stdio"
	}
	if c.EnvFile != "" {
		entry["envFile"] = c.EnvFile
	}
	env := map[string]string{}
	for _, v := range slices.Sorted(maps.Keys(c.Variables)) {
		if in := c.Variables[v]; in != "" {
			env[v] = in
		}
	}
	if len(env) > 0 {
		entry["env"] = env
	}
	return name, entry
}

func indented(v any, prefix string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, "  ")
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
