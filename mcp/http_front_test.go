package mcp

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// web is a gateway that serves over HTTP, in front of a fake server.
type web struct {
	t     *testing.T
	url   string
	front *Front
	log   string
	guard *idem.Guard
}

func startFront(t *testing.T, modes string, cfg HTTPConfig, change ...func(*Config)) *web {
	t.Helper()
	srv, log := server(t, modes)
	set, err := policy.New(policy.Config{Servers: []string{"fake"}})
	if err != nil {
		t.Fatal(err)
	}
	system, err := proc.New()
	if err != nil {
		t.Fatal(err)
	}
	st := memstore.New(memstore.Config{})
	guard, err := idem.New(idem.Config{Store: st, Policy: set, Owner: system.Self(), Processes: system})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Guard: guard, Servers: []Server{srv}, Policy: stubPolicy{"peek": {Effect: policy.EffectRead}, "progress": {Effect: policy.EffectRead}, "steps": {Effect: policy.EffectRead}}, Drain: 2 * time.Second, ClientWait: -1, Log: testLog(t),
		Identity: Identity{Task: []string{"_meta.mcp-idem/task", "header.Mcp-Idem-Task"}, Step: []string{"_meta.mcp-idem/step", "header.Mcp-Idem-Step"}, Key: []string{"_meta.mcp-idem/key"},
			GenericKey: []string{"header.Idempotency-Key"}}}
	for _, f := range change {
		f(&c)
	}
	g, err := NewGateway(c)
	if err != nil {
		t.Fatal(err)
	}
	w := &web{t: t, front: g.Front(cfg), log: log, guard: guard}
	ts := httptest.NewServer(w.front)
	w.url = ts.URL
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		w.front.Close(ctx)
		ts.CloseClientConnections()
		ts.Close()
		g.Close()
		_ = guard.Close(ctx)
		_ = st.Close()
	})
	return w
}

// webClient keeps connections for many clients at once.
var webClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}

// visitor is a client over HTTP.
type visitor struct {
	*web
	session, token, host, origin string
}

func (v *visitor) request(ctx context.Context, method, body string, head ...string) (*http.Response, error) {
	req, err := v.prepare(ctx, method, body, head...)
	if err != nil {
		return nil, err
	}
	return webClient.Do(req)
}

func (v *visitor) prepare(ctx context.Context, method, body string, head ...string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range map[string]string{"Mcp-Session-Id": v.session, "Origin": v.origin} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if m := readMessage([]byte(body)); m.version != "" { // what the stateless protocol wants
		for name, value := range map[string]string{headerVersion: m.version, headerMethod: m.method, headerName: m.name} {
			req.Header.Set(name, value)
		}
	}
	if v.token != "" {
		req.Header.Set("Authorization", "Bearer "+v.token)
	}
	if v.host != "" {
		req.Host = v.host
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	return req, nil
}

// wants makes a request and wants its status.
func (v *visitor) wants(status int, method, body string, head ...string) {
	v.t.Helper()
	resp, err := v.request(v.t.Context(), method, body, head...)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		v.t.Errorf("%s: status %d, want %d", method, resp.StatusCode, status)
	}
}

// post wants a status, and every part in the body.
func (v *visitor) post(status int, body string, parts ...string) string {
	v.t.Helper()
	resp, err := v.request(v.t.Context(), http.MethodPost, body)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		v.session = s
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	if resp.StatusCode != status {
		v.t.Errorf("%s: status %d, want %d: %s", body, resp.StatusCode, status, b)
	}
	for _, p := range parts {
		if !strings.Contains(string(b), p) {
			v.t.Errorf("%s: no %q in %s", body, p, b)
		}
	}
	return string(b)
}

func (w *web) visitor() *visitor { return &visitor{web: w} }

func (v *visitor) handshake() *visitor {
	v.t.Helper()
	v.post(200, initLine, `"id":"init"`, `"fake"`)
	if v.session == "" {
		v.t.Fatal("there is no session")
	}
	v.post(202, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return v
}

func callLine(id int, tool, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{},"_meta":{%s}}}`, id, tool, meta)
}

func (w *web) seen() string { return (&rig{t: w.t, log: w.log}).seen() }

func TestFrontSession(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{})
	v := w.visitor().handshake()
	v.post(200, `{"jsonrpc":"2.0","id":"a","method":"tools/list"}`, `"id":"a"`, `"x":9007199254740993`)
	v.post(200, callLine(1, "echo", `"mcp-idem/task":"t","mcp-idem/step":"s"`), `"id":1`, `"mcp-idem/state":"COMMITTED"`)
	v.post(200, callLine(2, "echo", `"mcp-idem/task":"t","mcp-idem/step":"s"`), `"id":2`, `"mcp-idem/replayed":true`)
	v.post(400, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "-32600", "batches")
	v.post(400, `{"jsonrpc":`, "-32700")
	v.wants(http.StatusBadRequest, http.MethodPost, `{"jsonrpc":"2.0","id":5,"method":"ping"}`, headerVersion, "1999-01-01")
	v.wants(http.StatusOK, http.MethodPost, `{"jsonrpc":"2.0","id":5,"method":"ping"}`, headerVersion, "2025-06-18")
	other := w.visitor().handshake()
	if other.session == v.session {
		t.Error("two clients have one session")
	}
	other.post(200, callLine(1, "echo", `"mcp-idem/task":"t","mcp-idem/step":"s"`), `"mcp-idem/replayed":true`)
	v.wants(http.StatusNoContent, http.MethodDelete, "")
	v.post(404, `{"jsonrpc":"2.0","id":3,"method":"ping"}`, "not known")
	if n := strings.Count(w.seen(), "call echo"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestFrontStreams: what belongs to a request comes on its stream, and the rest
// on the general one.
func TestFrontStreams(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{})
	v := w.visitor().handshake()
	resp, err := v.request(t.Context(), http.MethodPost, callLine(1, "progress", `"progressToken":"t"`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if ct := resp.Header.Get("Content-Type"); err != nil || ct != "text/event-stream" || !strings.Contains(string(b), "notifications/progress") || !strings.Contains(string(b), `"id":1`) {
		t.Errorf("%s, %v:\n%s", ct, err, b)
	}
	general, err := v.request(t.Context(), http.MethodGet, "")
	if err != nil || general.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", general, err)
	}
	defer general.Body.Close()
	in := bufio.NewScanner(general.Body)
	answered := make(chan string, 1)
	go func() {
		answered <- v.post(200, callLine(2, "human", ""), `"id":2`, `"yes":true`)
	}()
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatal(err)
		}
		if m.Method == "elicitation/create" {
			v.post(202, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"yes":true}}`, m.ID))
			break
		}
	}
	<-answered
}

// TestQueryOfAProcess goes to the process that it is about, whoever came last, and
// to no other when that one has ended.
func TestQueryOfAProcess(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{})
	one, two := w.visitor().handshake(), w.visitor().handshake()
	pid := func(v *visitor) string {
		got := v.post(200, callLine(1, "pid", ""))
		return got[strings.Index(got, `"text":`):][:14]
	}
	first := pid(one)
	if first == pid(two) {
		t.Fatal("two clients have one process")
	}
	w.front.mu.Lock()
	incarnation := w.front.sessions[one.session].s.ups[0].live.Load().incarnation
	w.front.mu.Unlock()
	got, err := w.front.g.Call(t.Context(), "fake", incarnation, "pid", nil)
	if err != nil || !strings.Contains(string(got), first) {
		t.Errorf("%s, %v, want %s", got, err, first)
	}
	one.wants(http.StatusNoContent, http.MethodDelete, "")
	for end := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, err = w.front.g.Call(t.Context(), "fake", incarnation, "pid", nil)
	}
	if !errors.Is(err, errGone) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

func TestFrontBearers(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{Bearers: []Bearer{{sha256.Sum256([]byte("one")), "acme", "a"}, {sha256.Sum256([]byte("two")), "other", "b"}}})
	v := w.visitor()
	v.post(401, initLine)
	v.token = "wrong"
	v.post(401, initLine)
	v.token = "one"
	v.handshake()
	const named = `"mcp-idem/task":"t","mcp-idem/step":"s"`
	v.post(200, callLine(1, "echo", named), `"mcp-idem/state":"COMMITTED"`)
	thief := &visitor{web: w, session: v.session, token: "two"}
	thief.post(404, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	stranger := &visitor{web: w, token: "two"}
	if got := stranger.handshake().post(200, callLine(1, "echo", named), `"mcp-idem/state":"COMMITTED"`); strings.Contains(got, "replayed") {
		t.Errorf("another tenant's outcome: %s", got)
	}
	if n := strings.Count(w.seen(), "call echo"); n != 2 {
		t.Errorf("%d effects for two tenants", n)
	}
}

func TestFrontRefuses(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{MaxBody: 1000, AllowedOrigins: []string{"https://app.example"}, AllowedHosts: []string{"mcp.example"}})
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{"", "", 200}, {"evil.example", "", 403}, {"evil.example:1234", "", 403}, {"mcp.example", "", 200}, {"mcp.example:99", "", 200}, {"[::1]:7", "", 200}, {"localhost", "", 200},
		{"", "https://evil.example", 403}, {"", "https://app.example", 200}, {"", "http://localhost:3000", 200}, {"", "null", 403}, {"127.0.0.1.evil.example", "", 403},
	} {
		v := &visitor{web: w, host: c.host, origin: c.origin}
		v.post(c.status, initLine)
	}
	v := w.visitor().handshake()
	v.post(413, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`+strings.Repeat("x", 1000)+`"}}`)
	v.wants(http.StatusUnsupportedMediaType, http.MethodPost, `{}`, "Content-Type", "text/plain")
	v.wants(http.StatusMethodNotAllowed, http.MethodPut, `{}`)
}

// TestFrontWithoutSession serves clients of the stateless protocol, and those
// that say nothing of it, whose requests share the servers and nothing else.
func TestFrontWithoutSession(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{})
	v := w.visitor()
	meta := modernMeta(`{}`)
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+meta+`}}`, `"supportedVersions":["2026-07-28"]`)
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`, `"resultType":"complete"`)
	call := func(head ...string) string {
		resp, err := v.request(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},`+meta+`}}`, head...)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		if !strings.Contains(string(b), `"mcp-idem/state":"COMMITTED"`) || !strings.Contains(string(b), `"resultType":"complete"`) {
			t.Errorf("%s", b)
		}
		return string(b)
	}
	call()
	call() // without a task each is its own
	call("Mcp-Idem-Task", "t", "Mcp-Idem-Step", "s")
	if got := call("Mcp-Idem-Task", "t", "Mcp-Idem-Step", "s"); !strings.Contains(got, "replayed") {
		t.Errorf("%s", got)
	}
	call("Mcp-Idem-Task", "t") // delivered, so that the next one is meant
	if got := call("Mcp-Idem-Task", "t"); strings.Contains(got, "replayed") {
		t.Errorf("%s", got)
	}
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"peek"`)
	if n := strings.Count(w.seen(), "call echo"); n != 5 {
		t.Errorf("%d effects", n)
	}
	if n := strings.Count(w.seen(), "start "); n != 1 {
		t.Errorf("%d processes", n)
	}
}

// TestFrontClose answers what is under way, and takes nothing new.
// TestFrontMixed: clients of either era share a stateless server, and each speaks
// its own.
func TestFrontMixed(t *testing.T) {
	t.Parallel()
	w := startFront(t, "modern-only", HTTPConfig{})
	v := w.visitor()
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"peek"`)
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"mcp-idem/key":"k"}}}`, `"done"`)
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1},"_meta":{"mcp-idem/key":"k2",`+modernMeta(`{"sampling":{}}`)[len(`"_meta":{`):]+`}}`, `"done"`)
	v.post(200, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `"result":{}`)
	seen := w.seen()
	for line := range strings.Lines(seen) {
		if (strings.HasPrefix(line, "list") || strings.HasPrefix(line, "call")) && strings.Count(line, metaVersion) != 1 {
			t.Error(line)
		}
	}
	if !strings.Contains(seen, `{"sampling":{}}`) || strings.Count(seen, "call echo") != 2 {
		t.Error(seen)
	}
}

func TestFrontClose(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{})
	v := w.visitor().handshake()
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.post(200, callLine(1, "slow", ""), `"id":1`, `"mcp-idem/state":"COMMITTED"`)
	}()
	(&rig{t: t, log: w.log}).waitSeen("call slow", 1)
	w.front.Close(t.Context())
	<-done
	w.visitor().post(503, initLine, "ending")
	if err := w.guard.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFrontIdle ends sessions that nobody uses.
func TestFrontIdle(t *testing.T) {
	t.Parallel()
	w := startFront(t, "", HTTPConfig{SessionIdle: 500 * time.Millisecond})
	v := w.visitor()
	v.post(200, initLine, `"fake"`)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		w.front.mu.Lock()
		n := len(w.front.sessions) + len(w.front.ending)
		w.front.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is there still")
		}
	}
	v.post(404, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
}

// TestFrontCrowd: many clients use the same ids, and leave at random moments.
// Every effect happens once, and every answer is the right one.
func TestFrontCrowd(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	effects := map[string]int{}
	srv := sdkserver.NewMCPServer("fake", "1")
	srv.AddTool(sdk.NewTool("mirror"), func(_ context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		of := req.GetString("of", "")
		mu.Lock()
		defer mu.Unlock()
		effects[of]++
		return sdk.NewToolResultText("mirror " + of), nil
	})
	upstream := httptest.NewServer(sdkserver.NewStreamableHTTPServer(srv))
	t.Cleanup(upstream.Close)
	w := startFront(t, "", HTTPConfig{}, func(c *Config) { c.Servers = []Server{{Name: "fake", URL: upstream.URL + "/mcp", Log: testLog(t)}} })
	const clients, calls = 50, 40
	var wg sync.WaitGroup
	for n := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			v := w.visitor().handshake()
			for i := range calls {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"mirror","arguments":{"of":"%d-%d"},"_meta":{"mcp-idem/task":"t%d","mcp-idem/step":"s%d"}}}`, i, n, i, n, i)
				if rng.IntN(4) == 0 { // it does not wait for the answer
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Microsecond)
					if resp, err := v.request(ctx, http.MethodPost, body); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					cancel()
					if rng.IntN(3) == 0 { // and comes back as another one
						v = w.visitor().handshake()
					}
				}
				for {
					got := v.post(200, strings.Replace(body, `"id":`, `"id":100`, 1), fmt.Sprintf(`"id":100%d,`, i))
					if strings.Contains(got, "OPERATION_IN_PROGRESS") {
						continue
					}
					if want := fmt.Sprintf(`"mirror %d-%d"`, n, i); !strings.Contains(got, want) {
						t.Errorf("client %d, call %d: %s", n, i, got)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	for n := range clients {
		for i := range calls {
			if c := effects[fmt.Sprintf("%d-%d", n, i)]; c != 1 {
				t.Errorf("%d effects of call %d of client %d", c, i, n)
			}
		}
	}
}
