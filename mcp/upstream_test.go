package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

func (r *rig) pids() []int {
	var pids []int
	for line := range strings.Lines(r.seen()) {
		if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "start "); ok {
			n, _ := strconv.Atoi(pid)
			pids = append(pids, n)
		}
	}
	return pids
}

func TestRestartSaysTheClientsInitializeAgain(t *testing.T) {
	r := start(t, "", stubPolicy{"exit": {Process: true}}).handshake()
	r.call("1", "exit", "{}", "")
	r.expect(`"id":1`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	r.expect(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	r.call("3", "echo", "{}", "")
	r.expect(`"id":3`, `"done"`)
	seen := r.seen()
	if n := strings.Count(seen, `initialize {"protocolVersion":"2025-11-25","capabilities":{"x":1.0}`); n != 2 || len(r.pids()) != 2 {
		t.Errorf("%d initialize, %d processes:\n%s", n, len(r.pids()), seen)
	}
	if n := strings.Count(seen, "notifications/initialized"); n != 2 {
		t.Errorf("%d initialized:\n%s", n, seen)
	}
	for _, line := range r.lines {
		if strings.Contains(string(line), "serverInfo") {
			t.Errorf("the client got the answer to a handshake that it did not make: %s", line)
		}
	}
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	if len(r.guard.lost) != 1 {
		t.Errorf("the guard was told of %d processes", len(r.guard.lost))
	}
}

func TestProcessThatDiesBeforeInitializeIsAnswered(t *testing.T) {
	r := start(t, "dies-once", nil)
	r.handshake()
	if n := len(r.pids()); n != 2 {
		t.Errorf("%d processes", n)
	}
}

func TestPipelinedHandshake(t *testing.T) {
	r := start(t, "", nil)
	r.send(initLine + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":"init"`)
	r.expect(`"id":1`, `"tools"`)
	seen := r.seen()
	if a, b := strings.Index(seen, "notifications/initialized"), strings.Index(seen, "list "); a < 0 || a > b {
		t.Errorf("the server saw them in another order:\n%s", seen)
	}
}

func TestUpstreamThatCannotBeStarted(t *testing.T) {
	t.Run("no such command", func(t *testing.T) {
		g, err := NewGateway(Config{Guard: &stubGuard{}, Servers: []Server{{Name: "x", Command: "/no/such/command"}}, Policy: stubPolicy{}})
		if err != nil {
			t.Fatal(err)
		}
		in, hold := io.Pipe()
		defer hold.Close()
		err = g.Serve(t.Context(), in, io.Discard)
		var start *StartError
		if !errors.As(err, &start) || start.Command != "/no/such/command" {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Run("it always ends", func(t *testing.T) {
		r := start(t, "dies", nil)
		r.send(initLine)
		r.expect(`"id":"init"`, `"error"`)
		var start *StartError
		select {
		case err := <-r.done:
			if !errors.As(err, &start) || len(start.Stderr) == 0 || !strings.Contains(err.Error(), "no such package") {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the gateway goes on")
		}
	})
}

func TestQueryWithoutAClient(t *testing.T) {
	for modes, want := range map[string]string{"": "initialize", "modern-only": "discover"} {
		t.Run("server "+modes, func(t *testing.T) {
			t.Parallel()
			srv, log := server(t, modes)
			srv.ClientWait = -1
			up := NewUpstream(srv)
			defer up.Close()
			got, err := up.Call(t.Context(), "peek", []byte(`{"q":1.0}`))
			if err != nil || string(find(got, "got")) != `{"q":1.0}` {
				t.Fatalf("%s, %v", got, err)
			}
			b, err := os.ReadFile(log)
			if err != nil || !bytes.Contains(b, []byte(want)) {
				t.Errorf("no %s: %s", want, b)
			}
			if modern := bytes.Contains(b, []byte(`call peek {"q":1.0} {"io.modelcontextprotocol/protocolVersion"`)); modern != (modes != "") {
				t.Errorf("carries the stateless protocol's _meta: %v\n%s", modern, b)
			}
			_, err = up.Call(t.Context(), "rejects", nil)
			var rpc *RPCError
			if !errors.As(err, &rpc) || rpc.Code != -32602 || rpc.Message != "bad priority" {
				t.Errorf("%v", err)
			}
			tools, err := up.Tools(t.Context())
			if err != nil || len(tools) != 3 || !tools[0].ReadOnly || tools[2].Takes("b") || !tools[2].Takes("a") {
				t.Errorf("%v, %v", tools, err)
			}
			if _, err := up.Call(t.Context(), "exit", nil); err == nil {
				t.Error("a query that was never answered succeeds")
			}
			if _, err := up.Call(t.Context(), "peek", nil); err != nil {
				t.Errorf("after a restart: %v", err)
			}
		})
	}
}

func TestClientComesAfterOurOwnHandshake(t *testing.T) {
	r := start(t, "", nil, func(c *Config) { c.ClientWait = -1 })
	if _, err := r.up.Call(t.Context(), "peek", nil); err != nil {
		t.Fatal(err)
	}
	r.handshake()
	if n := len(r.pids()); n != 2 {
		t.Errorf("%d processes: the client's handshake must meet a fresh one", n)
	}
	if _, err := r.up.Call(t.Context(), "peek", nil); err != nil {
		t.Error(err)
	}
	if n := len(r.pids()); n != 2 {
		t.Errorf("%d processes after one more query", n)
	}
}

func TestModernClient(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	r := start(t, "modern-only", nil)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
	r.expect(`"id":1`, `2026-07-28`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo",` + meta + `}}`)
	r.expect(`"id":2`, `mcp-idem/op`)
	if _, err := r.up.Call(t.Context(), "peek", nil); err != nil {
		t.Error(err)
	}
	if n := len(r.pids()); n != 1 {
		t.Errorf("%d processes", n)
	}
}

// TestEndTakesTheGroupFirst: an attempt may be told that its group has ended
// only when that is so for what the server started, too.
func TestEndTakesTheGroupFirst(t *testing.T) {
	srv, log := server(t, "")
	self := srv.Command
	srv.Command, srv.Args = "sh", []string{"-c", `sleep 60 & echo orphan $! >>"$FAKE_LOG"; ` + self}
	up := NewUpstream(srv)
	defer up.Close()
	if err := up.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := up.live.Load()
	ends := make(chan reply, 1)
	line := []byte(`{"id":0,"method":"tools/call","params":{"name":"exit"}}`)
	if _, err := c.send(line, span{6, 7}, &pending{done: func(r reply) { ends <- r }}); err != nil {
		t.Fatal(err)
	}
	r := <-ends
	b, _ := os.ReadFile(log)
	orphan, _ := strconv.Atoi(between(string(b), "orphan ", "\n"))
	state, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(orphan)).Output()
	if orphan == 0 || !r.ended || (len(state) > 0 && state[0] != 'Z') {
		t.Errorf("ended %v, %v; the orphan %d is %q", r.ended, r.err, orphan, state)
	}
}

func TestNothingWasSent(t *testing.T) {
	r := start(t, "", nil).handshake()
	c := r.up.live.Load()
	params, _ := gather([]byte(`{"name":"echo"}`))
	line := []byte(`{"id":1,"method":"tools/call","params":{"name":"echo"}}`)
	call := &call{s: newSession(&Gateway{cfg: Config{Guard: r.guard}, identity: &identity{}}, []*Upstream{r.up}, lineSink{&lineWriter{w: io.Discard}}), up: r.up, name: "echo", params: params,
		env: envelope{line: line, id: span{6, 7}, params: span{38, 53}}, rules: Tool{Judge: judge}, ctx: t.Context()}
	for _, process := range []bool{false, true} {
		call.rules.Process = process
		o := call.attempt(t.Context(), idem.Dispatch{Site: idem.Site{Incarnation: "another"}})
		if o.Class != idem.ClassNotSent || o.Ended != idem.EndByNotSent || o.Lost != process {
			t.Errorf("to another process than was prepared, state in the process %v: %+v", process, o)
		}
	}
	_ = c.wire.(*process).inFile.Close() // as if the process had closed its input
	if o := call.attempt(t.Context(), idem.Dispatch{Site: idem.Site{Incarnation: c.incarnation}}); o.Class != idem.ClassNotSent {
		t.Errorf("the pipe took no byte: %+v", o)
	}
}

func TestDrain(t *testing.T) {
	r := start(t, "", nil).handshake()
	r.call("1", "slow", "{}", "")
	r.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	r.waitSeen("call slow", 1)
	if err := r.close(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassSuccess {
		t.Errorf("a call under way at the end of the input: %+v", o)
	}
	r.expect(`"id":1`, `"done"`)

	r = start(t, "", nil, func(c *Config) { c.Drain = 50 * time.Millisecond }).handshake()
	r.call("1", "silent", "{}", "")
	r.waitSeen("call silent", 1)
	_ = r.close()
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassAmbiguous || o.Ended != idem.EndByGroup {
		t.Errorf("a call that outlasts drain: %+v", o)
	}
	r.expect(`"id":1`, "OUTCOME_UNKNOWN") // its asker learns what became of it
	if err := syscall.Kill(r.pids()[0], 0); err == nil {
		t.Error("the server is alive")
	}
}

// broken is a client that does not read any more.
type broken struct{ io.Writer }

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestBrokenOutputLosesNoOutcome(t *testing.T) {
	srv, log := server(t, "")
	guard := &stubGuard{done: map[string]idem.Outcome{}}
	g, err := NewGateway(Config{Guard: guard, Servers: []Server{srv}, Policy: stubPolicy{}})
	if err != nil {
		t.Fatal(err)
	}
	in := strings.NewReader(initLine + "\n" + `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}` + "\n")
	if err := g.Serve(context.Background(), in, broken{}); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if o := guard.ended(t, 1)[0]; o.Class != idem.ClassSuccess {
		b, _ := os.ReadFile(log)
		t.Errorf("%+v\n%s", o, b)
	}
}

func TestLongLines(t *testing.T) {
	r := start(t, "", nil).handshake()
	big := strings.Repeat("x", 3<<20)
	r.call("1", "echo", `{"big":"`+big+`"}`, "")
	if got := r.expectWithin(time.Minute, `"id":1`); !strings.Contains(got, big) {
		t.Errorf("%d bytes came back", len(got))
	}
}
