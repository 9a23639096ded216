package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// stage is one server behind a relay, one ledger and one configuration.
type stage struct {
	t      *testing.T
	bin    string
	dir    string // the server's storage
	config string
	ctl    relay.Control
	enter  func(*exec.Cmd) *exec.Cmd // takes a command to the host that it runs on; nil: this one
}

// setting is what a stage is made of.
type setting struct {
	bin      string
	ledger   ledger // nil: bolt
	name     string // in mcpServers
	storage  string // the server's directory
	command  []string
	env      map[string]string
	policies []map[string]any
	linger   bool   // the server outlives a killed gateway
	lease    string // "": 2s
}

func newStage(t *testing.T, s setting) *stage {
	t.Helper()
	home := t.TempDir()
	if s.ledger == nil {
		s.ledger = bolt{}
	}
	st := &stage{t: t, bin: s.bin, dir: s.storage, config: filepath.Join(home, "config.json"), ctl: relay.Control{Dir: filepath.Join(home, "control")}}
	must(t, os.Mkdir(st.ctl.Dir, 0o700))
	self, err := os.Executable()
	must(t, err)
	args := []string{"__relay", "-control", st.ctl.Dir}
	if s.linger {
		args = append(args, "-linger")
	}
	env := map[string]string{"GORACE": "atexit_sleep_ms=0"} // the relay's, which else sleeps for a second when it ends
	maps.Copy(env, s.env)
	config, err := json.MarshalIndent(map[string]any{
		"ledger":     s.ledger.url(t, home),
		"lease":      cmp.Or(s.lease, "2s"),
		"mcpServers": map[string]any{s.name: map[string]any{"command": self, "args": append(append(args, "--"), s.command...), "env": env}},
		"policies":   s.policies,
	}, "", "  ")
	must(t, err)
	must(t, os.WriteFile(st.config, config, 0o600))
	t.Cleanup(st.killServers) // a failed test leaves nothing behind either
	return st
}

// realStage is a stage with a server from npm.
func realStage(t *testing.T, s npm.Server, policies []map[string]any, linger bool) *stage {
	t.Helper()
	return realStageOn(t, nil, s, policies, linger)
}

func realStageOn(t *testing.T, l ledger, s npm.Server, policies []map[string]any, linger bool) *stage {
	t.Helper()
	root := needServers(t)
	dir := t.TempDir()
	must(t, s.Prepare(root, dir))
	command, env := s.Command(root, dir)
	return newStage(t, setting{
		bin: mustBuild(t, gateway), ledger: l, name: s.Name, storage: dir, command: command, env: env, policies: policies, linger: linger,
	})
}

// command is the gateway's command line, with its environment.
func (st *stage) command(env ...string) *exec.Cmd {
	cmd := exec.Command(st.bin, "--config", st.config)
	cmd.Env = append(os.Environ(), append(env, "XDG_STATE_HOME="+filepath.Dir(st.config))...)
	if st.enter != nil {
		return st.enter(cmd)
	}
	return cmd
}

// start starts the gateway and makes the handshake.
func (st *stage) start(env ...string) *rawmcp.Client {
	st.t.Helper()
	return connect(st.t, st.command(env...))
}

func connect(t *testing.T, cmd *exec.Cmd) *rawmcp.Client {
	t.Helper()
	c := launch(t, cmd)
	_, err := c.Initialize(deadline(t))
	must(t, err)
	return c
}

// launch starts a process that ends with the test.
func launch(t *testing.T, cmd *exec.Cmd) *rawmcp.Client {
	t.Helper()
	c, err := rawmcp.Start(cmd)
	must(t, err)
	t.Cleanup(func() {
		c.Close(3 * time.Second)
		if t.Failed() && c.Stderr() != "" {
			t.Logf("process %d said:\n%s", c.Pid(), c.Stderr())
		}
	})
	return c
}

// killServers kills every relay and server that was started so far.
func (st *stage) killServers() {
	st.t.Helper()
	all, err := st.ctl.Events()
	must(st.t, err)
	for _, e := range all {
		if e.What == relay.Started {
			for _, pid := range []int{e.Server, e.Pid} {
				if st.ours(pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
}

// ours tells a process of this stage from a later one of the same number: the
// stage's directories stand in its command line or environment.
func (st *stage) ours(pid int) bool {
	return alive(pid) && (mentions(pid, "cmdline", st.ctl.Dir) || mentions(pid, "environ", st.dir) || mentions(pid, "cmdline", st.dir))
}

// started returns the n-th start of the relay.
func (st *stage) started(n int) relay.Event {
	st.t.Helper()
	return st.wait(relay.Started, "", n)
}

func (st *stage) wait(what, tool string, n int) relay.Event {
	st.t.Helper()
	e, err := st.ctl.Wait(deadline(st.t), what, tool, n)
	must(st.t, err)
	return e
}

func (st *stage) count(what, tool string) int {
	st.t.Helper()
	n, err := st.ctl.Count(what, tool)
	must(st.t, err)
	return n
}

// askInBackground calls a tool and reports how the call ended.
func askInBackground(t *testing.T, c *rawmcp.Client, tool string, args, meta map[string]any) <-chan rawmcp.Message {
	t.Helper()
	ctx := deadline(t)
	done := make(chan rawmcp.Message, 1)
	go func() {
		m, err := c.Call(ctx, tool, args, meta)
		if err != nil && !errors.Is(err, rawmcp.ErrEnded) {
			t.Errorf("%s: %v", tool, err)
		}
		done <- m
	}()
	return done
}

// settle asks until the operation is settled and returns that answer.
func settle(t *testing.T, c *rawmcp.Client, tool string, args, meta map[string]any) rawmcp.Message {
	t.Helper()
	ctx := deadline(t)
	for {
		m, err := c.Call(ctx, tool, args, meta)
		must(t, err)
		if m.Error != nil {
			t.Fatalf("%s: %s", tool, m.Raw)
		}
		switch code := m.Tool().MetaString("mcp-idem/code"); code {
		case "OUTCOME_UNKNOWN", "OPERATION_IN_PROGRESS", "RETRY_SCHEDULED", "EXECUTED_NOT_RECORDED":
			time.Sleep(100 * time.Millisecond) // what an agent's next turn takes
		case "":
			return m
		default:
			t.Fatalf("%s: %s", tool, m.Raw)
		}
	}
}

func step(task, step string) map[string]any {
	return map[string]any{"mcp-idem/task": task, "mcp-idem/step": step}
}

// wantCommitted checks a settled answer.
func wantCommitted(t *testing.T, m rawmcp.Message, reconciled bool) {
	t.Helper()
	r := m.Tool()
	if s := r.MetaString("mcp-idem/state"); s != "COMMITTED" || r.IsError {
		t.Errorf("state %q, want COMMITTED: %s", s, m.Raw)
	}
	if got := r.MetaBool("mcp-idem/reconciled"); got != reconciled {
		t.Errorf("reconciled is %v, want %v: %s", got, reconciled, m.Raw)
	}
}

// wantReplay asks once more: the recorded outcome, marked, and no call.
func wantReplay(t *testing.T, c *rawmcp.Client, tool string, args, meta map[string]any, first rawmcp.Message) {
	t.Helper()
	m, err := c.Call(deadline(t), tool, args, meta)
	must(t, err)
	r := m.Tool()
	if !r.MetaBool("mcp-idem/replayed") || r.MetaString("mcp-idem/state") != "COMMITTED" {
		t.Errorf("not a replay: %s", m.Raw)
	}
	if r.Text() != first.Tool().Text() || r.MetaString("mcp-idem/op") != first.Tool().MetaString("mcp-idem/op") {
		t.Errorf("another outcome:\n%s\nfirst:\n%s", m.Raw, first.Raw)
	}
}
