package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// A foreign client, the MCP project's own Go library, goes through the same
// crash: it loses its gateway in the window and finds its outcome in the next.
func TestGoSDKClient(t *testing.T) {
	t.Parallel()
	s := npm.Filesystem()
	st := realStage(t, s, s.Policy("1s"), true)
	params := &mcp.CallToolParams{Meta: step("order-17", "ship"), Name: s.Tool, Arguments: s.Arguments(st.dir)}

	cmd := st.command()
	session := sdkConnect(t, cmd)
	tools, err := session.ListTools(deadline(t), nil)
	must(t, err)
	if len(tools.Tools) < 10 {
		t.Errorf("the server's tools did not come through: %d", len(tools.Tools))
	}
	must(t, st.ctl.Hold(s.Tool))
	ctx, lost := deadline(t), make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, params)
		lost <- err
	}()
	st.wait(relay.Held, s.Tool, 1)
	must(t, st.ctl.Hold(""))
	must(t, cmd.Process.Kill())
	if err := <-lost; err == nil {
		t.Fatal("answered by a dead gateway")
	}

	session = sdkConnect(t, st.command())
	for _, want := range []string{"", "mcp-idem/replayed"} {
		r, err := session.CallTool(deadline(t), params)
		must(t, err)
		if r.IsError || r.Meta["mcp-idem/state"] != "COMMITTED" {
			t.Fatalf("not settled: %+v", r)
		}
		if want != "" && r.Meta[want] != true {
			t.Errorf("%s is missing: %v", want, r.Meta)
		}
	}
	st.wantOnce(s)
}

func sdkConnect(t *testing.T, cmd *exec.Cmd) *mcp.ClientSession {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	session, err := client.Connect(deadline(t), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	t.Cleanup(func() { _ = session.Close() }) // killed, or ends with its input
	return session
}

// The inspector's command line sends no step: task and arguments name the
// operation. Its second run finds the unsettled twin of the first.
func TestInspectorCommandLine(t *testing.T) {
	t.Parallel()
	s := npm.SQLite()
	st := realStage(t, s, s.Policy("1s"), true)
	must(t, st.ctl.Hold(s.Tool))
	first := st.inspect("INSERT INTO orders (ref) VALUES ('ref-17')")
	var output rawmcp.Buffer
	first.Stdout, first.Stderr = &output, &output
	must(t, first.Start())
	st.wait(relay.Held, s.Tool, 1)
	must(t, st.ctl.Hold(""))
	must(t, syscall.Kill(st.started(1).Parent, syscall.SIGKILL)) // the gateway
	if err := first.Wait(); err == nil {
		t.Fatalf("answered by a dead gateway: %s", output.String())
	}

	out, err := st.inspect("INSERT INTO orders (ref) VALUES ('ref-17')").Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%v: %s %s", err, out, exit.Stderr)
	}
	wantCommitted(t, rawmcp.Message{Raw: out, Result: out}, true)
	st.wantOnce(s)
}

// inspect is a run of the inspector with the gateway as its server. Flags after
// the command would be the inspector's own, so the gateway is configured by its
// environment.
func (st *stage) inspect(query string) *exec.Cmd {
	root := needServers(st.t)
	cmd := exec.Command(filepath.Join(root, "node_modules", ".bin", "mcp-inspector"), "--cli", st.bin,
		"--method", "tools/call", "--tool-name", "write_query", "--tool-arg", "query="+query)
	cmd.Env = append(os.Environ(), "MCP_IDEM_CONFIG="+st.config, "MCP_IDEM_TASK=order-17", "XDG_STATE_HOME="+filepath.Dir(st.config))
	return cmd
}
