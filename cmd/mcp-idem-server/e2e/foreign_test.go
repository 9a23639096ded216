package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// The versions of the protocol that the clients here are asked for.
const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// plan is what a client of testdata/servers/clients does.
type plan struct {
	URL         string            `json:"url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Command     string            `json:"command,omitempty"`
	Args        []string          `json:"args,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Version     string            `json:"version"` // "": the client chooses
	MaxRetries  int               `json:"maxRetries"`
	Call        map[string]any    `json:"call"`
	Connections int               `json:"connections"` // each makes the call
}

// told is what it says of a connection.
type told struct {
	Version string
	Tools   []string
	Result  json.RawMessage
}

// run runs a client from npm to its end.
func (p plan) run(t *testing.T, script string) []told {
	t.Helper()
	return p.start(t, script)()
}

// start starts it; what it returns waits for the end.
func (p plan) start(t *testing.T, script string) func() []told {
	t.Helper()
	text, err := json.Marshal(p)
	must(t, err)
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(deadline(t), "node", filepath.Join(needServers(t), "clients", script), string(text))
	cmd.Stdout, cmd.Stderr = &out, &problems
	must(t, cmd.Start())
	return func() []told {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, problems.Bytes())
		}
		var said []told
		must(t, json.Unmarshal(out.Bytes(), &said))
		if len(said) != p.Connections {
			t.Fatalf("%s: %d connections, want %d", script, len(said), p.Connections)
		}
		return said
	}
}

// overHTTP and overStdio say where the stage's gateway is.
func (st *stage) overHTTP() plan { return plan{URL: st.serve().url} }

func (st *stage) overStdio() plan {
	cmd := st.command()
	return plan{Command: cmd.Path, Args: cmd.Args[1:], Env: map[string]string{"XDG_STATE_HOME": filepath.Dir(st.config)}}
}

// ways are the transports that clients know.
var ways = map[string]func(*stage) plan{"HTTP": (*stage).overHTTP, "stdio": (*stage).overStdio}

// Unmodified clients, by every transport and in every era that they speak, list
// the tools and call a guarded one. Each names what it does in a way that it
// has, so that its second connection finds the first one's outcome.
func TestForeignClients(t *testing.T) {
	t.Parallel()
	byStep := func(p *plan) { p.Call["_meta"] = ticketStep }
	for _, c := range []struct {
		name, script, version string
		agreed                string
		identify              func(*plan)
	}{
		{"TypeScript SDK 1", "sdk1.mjs", "", legacy, func(p *plan) { p.Call["idempotencyKey"] = "open-17" }},
		{"TypeScript SDK 2, legacy", "sdk2.mjs", legacy, legacy, byStep},
		{"TypeScript SDK 2, modern", "sdk2.mjs", modern, modern, byStep},
		{"TypeScript SDK 2, its choice", "sdk2.mjs", "", modern, func(p *plan) { p.Call["_meta"] = map[string]any{"idempotencyKey": "open-17"} }},
		{"AI SDK, legacy", "aisdk.mjs", legacy, legacy, byTask},
		{"AI SDK, its choice", "aisdk.mjs", "", modern, byTask},
	} {
		for way, where := range ways {
			t.Run(c.name+" over "+way, func(t *testing.T) {
				t.Parallel()
				needServers(t)
				st := ticketStage(t, mustBuild(t, gateway), nil)
				p := where(st)
				p.Version, p.Connections = c.version, 2
				p.Call = map[string]any{"name": ticketTool, "arguments": ticketArgs}
				c.identify(&p)
				for i, said := range p.run(t, c.script) {
					// Over stdio the AI SDK gives a server one second to say that it is modern.
					hasty := c.script == "aisdk.mjs" && way == "stdio" && said.Version == legacy
					if said.Version != c.agreed && !hasty {
						t.Errorf("version %q, want %q", said.Version, c.agreed)
					}
					if !slices.Contains(said.Tools, ticketTool) {
						t.Errorf("the tools are %v", said.Tools)
					}
					wantOutcome(t, st, rawmcp.Message{Raw: said.Result, Result: said.Result}, i > 0)
				}
			})
		}
	}
}

// byTask is for clients that say nothing with their calls: what the transport
// has for it. Over HTTP without sessions the task is the connection, and further
// messages show that the answer arrived: there it takes a step too.
func byTask(p *plan) {
	if p.URL != "" {
		p.Headers = map[string]string{"Mcp-Idem-Task": "order-17", "Mcp-Idem-Step": "open-ticket"}
	} else {
		p.Env["MCP_IDEM_TASK"] = "order-17"
	}
}

// wantOutcome checks that there is one ticket, that the answer names it, and
// whether it is a replay.
func wantOutcome(t *testing.T, st *stage, m rawmcp.Message, replayed bool) {
	t.Helper()
	wantTicket(t, st, m)
	if got := m.Tool().MetaBool("mcp-idem/replayed"); got != replayed {
		t.Errorf("replayed is %v, want %v: %s", got, replayed, m.Raw)
	}
}

// The MCP project's Go library, in both eras. The second client is another
// session, and sends its key as a header.
func TestGoSDKOverHTTP(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			st := ticketStage(t, mustBuild(t, gateway), nil)
			url := st.serve().url
			for i := range 2 {
				sdkTicket(t, st, version, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: keyed("open-17").client()}, i > 0)
			}
		})
	}
}

// Over stdio it chooses the modern era, where its client asks for it.
func TestGoSDKModernOverStdio(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), nil)
	for i := range 2 {
		sdkTicket(t, st, modern, &mcp.CommandTransport{Command: st.command("MCP_IDEM_TASK=order-17")}, i > 0)
	}
}

func sdkTicket(t *testing.T, st *stage, version string, way mcp.Transport, replayed bool) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	session, err := client.Connect(deadline(t), way, &mcp.ClientSessionOptions{ProtocolVersion: version})
	must(t, err)
	defer func() { must(t, session.Close()) }()
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("version %s, want %s", got, version)
	}
	tools, err := session.ListTools(deadline(t), nil)
	must(t, err)
	if !slices.ContainsFunc(tools.Tools, func(tool *mcp.Tool) bool { return tool.Name == ticketTool }) {
		t.Errorf("the tools are %v", tools.Tools)
	}
	r, err := session.CallTool(deadline(t), &mcp.CallToolParams{Name: ticketTool, Arguments: ticketArgs})
	must(t, err)
	raw, err := json.Marshal(r)
	must(t, err)
	wantOutcome(t, st, rawmcp.Message{Raw: raw, Result: raw}, replayed)
}

// keyed is a client that names one operation.
type keyed string

func (k keyed) client() *http.Client { return &http.Client{Transport: k} }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Idempotency-Key", string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// The inspector's command line over HTTP: a run has a session of its own and
// a header with its key.
func TestInspectorOverHTTP(t *testing.T) {
	t.Parallel()
	root := needServers(t)
	st := ticketStage(t, mustBuild(t, gateway), nil)
	url := st.serve().url
	inspect := func(args ...string) []byte {
		args = append([]string{"--cli", url, "--transport", "http"}, args...)
		out, err := exec.CommandContext(deadline(t), filepath.Join(root, "node_modules", ".bin", "mcp-inspector"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	if out := inspect("--method", "tools/list"); !bytes.Contains(out, []byte(`"name": "`+ticketTool+`"`)) {
		t.Errorf("the tools are %s", out)
	}
	for i := range 2 {
		out := inspect("--header", "Idempotency-Key: open-17", "--method", "tools/call", "--tool-name", ticketTool,
			"--tool-arg", "order_id=order-17", "--tool-arg", "title=broken on arrival")
		wantOutcome(t, st, rawmcp.Message{Raw: out, Result: out}, i > 0)
	}
}
