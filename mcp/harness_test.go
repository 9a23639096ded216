package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// stubGuard runs each step once and replays it; it keeps nothing else of what
// the guard promises.
type stubGuard struct {
	mu       sync.Mutex
	asks     []idem.Ask
	outcomes []idem.Outcome
	done     map[string]idem.Outcome
	lost     []string
	answer   func(idem.Ask) *idem.Answer // nil: run
}

func (g *stubGuard) Conn() *idem.Conn { return nil }

func (g *stubGuard) Do(ctx context.Context, ask idem.Ask, effect idem.Effect) idem.Answer {
	g.mu.Lock()
	g.asks = append(g.asks, ask)
	old, replayed := g.done[ask.Step]
	g.mu.Unlock()
	if g.answer != nil {
		if a := g.answer(ask); a != nil {
			return *a
		}
	}
	op := idem.OperationID(idem.Scope{Tenant: ask.Tenant, Tool: ask.Tool}, idem.SourceStep, "", 1, ask.Task, ask.Step)
	rec := &idem.Record{State: idem.StateCommitted, Task: ask.Task, Step: ask.Step, Last: 1, CommittedBy: 1}
	if replayed && ask.Step != "" {
		return idem.Answer{Record: rec, Op: op, Result: old.Result, Kind: old.Kind, Replayed: true}
	}
	site, err := effect.Prepare(ctx)
	if err != nil {
		return idem.Answer{Err: &idem.Error{Code: idem.CodeFailed, Text: "not sent: " + err.Error()}}
	}
	ends, freed := make(chan idem.Outcome, 1), make(chan struct{}, 1)
	free := func() {
		select {
		case freed <- struct{}{}:
		default:
		}
	}
	go func() {
		ends <- effect.Run(context.WithoutCancel(ctx), idem.Dispatch{Key: op.String(), Attempt: 1, Site: site, Free: free})
	}()
	unknown := func() idem.Answer {
		rec.State = idem.StateUnknown
		return idem.Answer{Err: &idem.Error{Code: idem.CodeUnknown, Text: "The outcome is not known.", Record: rec, Op: op}, Record: rec, Op: op}
	}
	record := func(o idem.Outcome) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.outcomes = append(g.outcomes, o)
		g.done[ask.Step] = o
	}
	select {
	case o := <-ends:
		record(o)
		if o.Result == nil {
			return unknown()
		}
		return idem.Answer{Record: rec, Op: op, Result: o.Result, Kind: o.Kind}
	case <-freed:
		go func() { record(<-ends) }()
		return unknown()
	case <-ctx.Done():
		go func() { record(<-ends) }()
		return idem.Answer{Err: &idem.Error{Code: idem.CodeInProgress, Text: "The call still runs."}}
	}
}

func (g *stubGuard) LostProcess(_ context.Context, _, _, incarnation string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = append(g.lost, incarnation)
	return nil
}

func (g *stubGuard) asked() []idem.Ask {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]idem.Ask(nil), g.asks...)
}

func (g *stubGuard) ended(t *testing.T, n int) []idem.Outcome {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		g.mu.Lock()
		out := append([]idem.Outcome(nil), g.outcomes...)
		g.mu.Unlock()
		if len(out) >= n {
			return out
		}
	}
	t.Fatalf("no %d outcomes", n)
	return nil
}

// stubPolicy holds the tools that differ from a plain write.
type stubPolicy map[string]Tool

func (p stubPolicy) Tool(name string) Tool {
	_, name, _ = strings.Cut(name, "/")
	t := p[name]
	t.Judge = judge
	return t
}

func judge(e End) idem.Outcome {
	tool := policy.DefaultTool()
	return tool.Classify(context.Background(), policy.Facts{Result: e.Result, RPCError: e.Error, Err: e.Err, Sent: !e.NotSent, HTTPStatus: e.Status, RetryAfter: e.RetryAfter})
}

// rig is a client, a gateway and a fake server.
type rig struct {
	t     *testing.T
	guard *stubGuard
	g     *Gateway // of several servers
	up    *Upstream
	in    *io.PipeWriter
	mu    sync.Mutex
	lines [][]byte
	woken chan struct{}
	done  chan error
	stop  context.CancelFunc // as SIGTERM does
	log   string             // what reached the server
}

func server(t *testing.T, modes string) (Server, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	return Server{Name: "fake", Command: self, Env: []string{fakeMode + "=on " + modes, "FAKE_LOG=" + log, "GORACE=atexit_sleep_ms=0"}, Log: testLog(t)}, log
}

func testLog(t *testing.T) zerolog.Logger {
	if !testing.Verbose() {
		return zerolog.Nop()
	}
	return zerolog.New(os.Stderr).With().Str("test", t.Name()).Logger()
}

func start(t *testing.T, modes string, tools stubPolicy, change ...func(*Config)) *rig {
	t.Helper()
	srv, log := server(t, modes)
	return startServer(t, srv, log, tools, change...)
}

// script is a server in sh.
func script(t *testing.T, text string, change ...func(*Config)) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.sh")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// Read by the shell, not run: a file that was just written may be busy.
	return startServer(t, Server{Name: "fake", Command: "sh", Args: []string{path}, Log: testLog(t)}, "", stubPolicy{}, change...)
}

func startServer(t *testing.T, srv Server, log string, tools stubPolicy, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, guard: &stubGuard{done: map[string]idem.Outcome{}}, woken: make(chan struct{}, 1), done: make(chan error, 1), log: log}
	cfg := Config{Guard: r.guard, Servers: []Server{srv}, Policy: tools, Drain: 2 * time.Second, Log: testLog(t), Identity: Identity{
		Task: []string{"_meta.mcp-idem/task", "flag"}, Step: []string{"_meta.mcp-idem/step"}, Key: []string{"_meta.mcp-idem/key"},
		GenericKey: []string{"_meta.idempotencyKey", "params.idempotencyKey"}, Alias: []string{"_meta.claudecode/toolUseId", "_meta.callId"}}}
	for _, f := range change {
		f(&cfg)
	}
	g, err := NewGateway(cfg)
	if err != nil {
		t.Fatal(err)
	}
	linked := g.cfg.Servers[0]
	linked.ClientWait = g.cfg.ClientWait
	r.up = g.upstream(linked)
	g.open = func(Server) *Upstream { return r.up }
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	r.in = inW
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		err := g.Serve(ctx, inR, outW)
		_ = outW.Close()
		_ = inR.CloseWithError(fmt.Errorf("the gateway has ended: %w", errors.Join(err, io.EOF)))
		r.done <- err
	}()
	go r.read(outR)
	t.Cleanup(func() { _ = inW.Close(); r.up.Close(); cancel() })
	return r
}

func (r *rig) read(out io.Reader) {
	in := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			r.mu.Lock()
			r.lines = append(r.lines, bytes.TrimSpace(line))
			r.mu.Unlock()
			select {
			case r.woken <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *rig) send(line string) {
	r.t.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

// expect waits for a line that holds every part, and takes it.
func (r *rig) expect(parts ...string) string {
	r.t.Helper()
	return r.expectWithin(10*time.Second, parts...)
}

func (r *rig) expectWithin(d time.Duration, parts ...string) string {
	r.t.Helper()
	limit := time.After(d)
	for {
		r.mu.Lock()
	next:
		for i, line := range r.lines {
			for _, p := range parts {
				if !bytes.Contains(line, []byte(p)) {
					continue next
				}
			}
			r.lines = append(r.lines[:i:i], r.lines[i+1:]...)
			r.mu.Unlock()
			if !json.Valid(line) && !bytes.Contains(line, []byte{0xff}) {
				r.t.Errorf("not JSON: %s", line)
			}
			return string(line)
		}
		all := bytes.Join(r.lines, []byte("\n"))
		r.mu.Unlock()
		select {
		case <-r.woken:
		case <-limit:
			r.t.Fatalf("no line with %q; there is:\n%s\nthe server saw:\n%s", parts, all, r.seen())
		}
	}
}

const initLine = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"x":1.0},"clientInfo":{"name":"t","version":"1"}}}`

func (r *rig) handshake() *rig {
	r.t.Helper()
	r.send(initLine)
	r.expect(`"id":"init"`, `"fake"`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (r *rig) call(id, tool, args, meta string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `,"_meta":{` + meta + `}}}`)
}

func (r *rig) seen() string {
	b, err := os.ReadFile(r.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(b)
}

// waitSeen waits until the server has noted a text n times.
func (r *rig) waitSeen(text string, n int) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); strings.Count(r.seen(), text) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the server did not see %q %d times:\n%s", text, n, r.seen())
		}
	}
}

// close ends the client and waits for the gateway.
func (r *rig) close() error {
	r.t.Helper()
	_ = r.in.Close()
	select {
	case err := <-r.done:
		return err
	case <-time.After(15 * time.Second):
		r.t.Fatal("the gateway does not end")
		return nil
	}
}
