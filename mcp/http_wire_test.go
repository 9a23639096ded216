package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// webServer is a server over HTTP with one tool per kind of trouble, which
// counts its effects.
type webServer struct {
	*httptest.Server
	mu       sync.Mutex
	effects  map[string]int
	headers  map[string]http.Header // of the last call of a tool
	sessions int
	live     string // the session that it knows
	began    int    // handshakes
	inits    int    // notifications/initialized
}

func newWebServer(t *testing.T) *webServer {
	t.Helper()
	s := &webServer{effects: map[string]int{}, headers: map[string]http.Header{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *webServer) count(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[tool]
}

func (s *webServer) forget() {
	s.mu.Lock()
	s.live = "gone"
	s.mu.Unlock()
}

// wait waits until n handshakes were finished, and wants no more.
func (s *webServer) wait(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		began, inits := s.began, s.inits
		s.mu.Unlock()
		if began == n && inits == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d handshakes, %d of them finished, want %d", began, inits, n)
		}
	}
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	b, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(b, &m)
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	s.mu.Lock()
	if m.Method == "initialize" {
		s.sessions++
		s.began++
		s.live = fmt.Sprint("s", s.sessions)
		w.Header().Set("Mcp-Session-Id", s.live)
		s.mu.Unlock()
		answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
		return
	}
	known := r.Header.Get("Mcp-Session-Id") == s.live && r.Header.Get("Mcp-Protocol-Version") == "2025-06-18"
	s.mu.Unlock()
	switch {
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	case m.Method == "notifications/initialized":
		s.mu.Lock()
		s.inits++
		s.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method != "tools/call":
		answer(`{}`)
		return
	}
	tool := m.Params.Name
	s.mu.Lock()
	s.headers[tool] = r.Header.Clone()
	if tool != "throttled" && tool != "forbidden" {
		s.effects[tool]++
	}
	first := s.effects[tool] == 1
	s.mu.Unlock()
	result := `{"content":[{"type":"text","text":"ok"}]}`
	stream := func(events ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			fmt.Fprint(w, e)
			w.(http.Flusher).Flush()
		}
	}
	hangUp := func() {
		c, _, _ := w.(http.Hijacker).Hijack()
		_ = c.Close()
	}
	switch tool {
	case "stream":
		stream("id: 1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n",
			": comment\n\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":"+string(m.ID)+",\"result\":"+result+"}\n\n")
	case "cut":
		stream("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n")
	case "reset":
		hangUp()
	case "half":
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":`)
		w.(http.Flusher).Flush()
		hangUp()
	case "redirect":
		if first {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		answer(result)
	case "throttled":
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	case "forbidden":
		w.WriteHeader(http.StatusForbidden)
	case "busy":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "busy-at-first":
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answer(result)
	case "rpc":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"Bad Request: session"}}`, m.ID)
	default:
		answer(result)
	}
}

func startWeb(t *testing.T, url string, change ...func(*Config)) *rig {
	t.Helper()
	return startServer(t, Server{Name: "fake", URL: url, Headers: map[string]string{"Authorization": "Bearer x"}, Log: testLog(t)}, "",
		stubPolicy{"peek": {Effect: policy.EffectRead}}, change...)
}

func TestHTTPUpstream(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]struct {
		class idem.Class
		ended idem.EndBy
	}{
		"echo":      {idem.ClassSuccess, idem.EndByAnswer},
		"stream":    {idem.ClassSuccess, idem.EndByAnswer},
		"cut":       {idem.ClassAmbiguous, idem.EndByBytes},
		"reset":     {idem.ClassAmbiguous, idem.EndByBytes},
		"half":      {idem.ClassAmbiguous, idem.EndByBytes},
		"redirect":  {idem.ClassAmbiguous, idem.EndByBytes},
		"busy":      {idem.ClassAmbiguous, idem.EndByBytes},
		"rpc":       {idem.ClassAmbiguous, idem.EndByBytes},
		"throttled": {idem.ClassThrottled, ""},
		"forbidden": {idem.ClassRejected, ""},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			s := newWebServer(t)
			r := startWeb(t, s.URL).handshake()
			r.call("1", tool, `{}`, "")
			r.expect(`"id":1`)
			o := r.guard.ended(t, 1)[0]
			if o.Class != want.class || o.Ended != want.ended {
				t.Errorf("%+v", o)
			}
			if tool == "throttled" && o.RetryAfter != 7*time.Second {
				t.Errorf("Retry-After %s", o.RetryAfter)
			}
			wantEffects := 1
			if tool == "throttled" || tool == "forbidden" {
				wantEffects = 0
			}
			if n := s.count(tool); n != wantEffects {
				t.Errorf("%d effects", n)
			}
			if tool == "stream" {
				r.expect(`notifications/progress`)
			}
			if h := s.headers[tool]; h.Get("Authorization") != "Bearer x" {
				t.Errorf("headers %v", h)
			}
		})
	}
}

// TestIdempotencyKeyHeader: with it net/http sends a POST again by itself where a
// kept connection dies. It must not, and the server gets the key.
func TestIdempotencyKeyHeader(t *testing.T) {
	t.Parallel()
	s := newWebServer(t)
	r := startServer(t, Server{Name: "fake", URL: s.URL, Log: testLog(t)}, "", stubPolicy{"reset": {Header: "idempotency-key"}}).handshake()
	r.call("1", "echo", `{}`, "") // a connection that is kept
	r.expect(`"id":1`)
	r.call("2", "reset", `{}`, "")
	r.expect(`"id":2`)
	if n := s.count("reset"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if key := s.headers["reset"].Get("Idempotency-Key"); len(key) != 32 {
		t.Errorf("key %q", key)
	}
}

// TestSessionIsForgotten: what did not run may be sent in another session, once.
func TestSessionIsForgotten(t *testing.T) {
	t.Parallel()
	s := newWebServer(t)
	r := startWeb(t, s.URL).handshake()
	s.wait(t, 1)
	s.forget()
	r.call("1", "echo", `{}`, "")
	r.expect(`"id":1`)
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassNotSent {
		t.Errorf("%+v", o)
	}
	r.call("2", "echo", `{}`, "")
	r.expect(`"id":2`, `mcp-idem/op`)
	s.wait(t, 2)
	s.forget()
	r.call("3", "peek", `{}`, "") // passes through, and needs nobody's decision
	r.expect(`"id":3`, `"ok"`)
	s.wait(t, 3)
	if n := s.count("echo") + s.count("peek"); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// TestServerOfAnotherTransport: the message says what to write instead.
func TestServerOfAnotherTransport(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }))
	t.Cleanup(web.Close)
	up := NewUpstream(Server{Name: "fake", URL: web.URL + "/sse", ClientWait: -1, Log: testLog(t)})
	t.Cleanup(up.Close)
	if _, err := up.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), `wants "type": "sse"`) || !strings.Contains(err.Error(), web.URL) {
		t.Errorf("%v", err)
	}
}

func TestServerThatIsDown(t *testing.T) {
	t.Parallel()
	s := newWebServer(t)
	r := startWeb(t, s.URL).handshake()
	s.CloseClientConnections()
	s.Close()
	r.call("1", "echo", `{}`, "")
	r.expect(`"id":1`)
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassNotSent || o.Ended != idem.EndByNotSent {
		t.Errorf("%+v", o)
	}
	r = startWeb(t, s.URL)
	r.send(initLine)
	r.expect(`"id":"init"`, `"error"`, "refused")
}

// TestSDKOverHTTP goes to servers written with mcp-go, stateful and stateless.
func TestSDKOverHTTP(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]sdkserver.StreamableHTTPOption{
		"stateful": sdkserver.WithStateLess(false), "stateless": sdkserver.WithStateLess(true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := sdkserver.NewMCPServer("fake", "1")
			var mu sync.Mutex
			effects := 0
			srv.AddTool(sdk.NewTool("echo"), func(ctx context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				mu.Lock()
				effects++
				mu.Unlock()
				if req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil {
					_ = srv.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": 1})
				}
				return sdk.NewToolResultText("hello"), nil
			})
			web := httptest.NewServer(sdkserver.NewStreamableHTTPServer(srv, option))
			t.Cleanup(web.Close)
			r := startWeb(t, web.URL+"/mcp")
			r.send(initLine)
			r.expect(`"id":"init"`, `"fake"`)
			r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			r.expect(`"id":1`, `"echo"`)
			r.call("2", "echo", `{}`, `"progressToken":"p"`)
			r.expect(`"id":2`, "hello", "mcp-idem/op")
			if name == "stateful" {
				r.expect("notifications/progress", `"p"`)
			}
			if err := r.close(); err != nil {
				t.Error(err)
			}
			if effects != 1 {
				t.Errorf("%d effects", effects)
			}
		})
	}
}

// TestStatelessClientOverHTTP speaks the later protocol to a server that does.
func TestStatelessClientOverHTTP(t *testing.T) {
	t.Parallel()
	srv := sdkserver.NewMCPServer("fake", "1")
	srv.AddTool(sdk.NewTool("écho"), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return sdk.NewToolResultText("hello"), nil
	})
	srv.AddTool(sdk.NewToolWithRawSchema("routed", "", json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)), func(_ context.Context, r sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return sdk.NewToolResultText("at " + r.Header.Get("Mcp-Param-Region")), nil
	})
	web := httptest.NewServer(sdkserver.NewStreamableHTTPServer(srv, sdkserver.WithStateLess(true)))
	t.Cleanup(web.Close)
	r := startWeb(t, web.URL+"/mcp")
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"routed","arguments":{"region":"eu"},` + modernMeta(`{}`) + `}}`)
	r.expect(`"id":3`, "at eu")
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta(`{}`) + `}}`)
	r.expect(`"id":1`, `"écho"`)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"écho",` + modernMeta(`{}`) + `}}`)
	r.expect(`"id":2`, "hello", `"resultType":"complete"`)
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-1": -1, "0": -1, "soon": -1, "Mon, 02 Jan 2006 15:04:05 GMT": -1} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	at := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	if got := retryAfter(http.Header{"Retry-After": {at}}); got < 50*time.Second || got > time.Minute {
		t.Errorf("%s: %s", at, got)
	}
}

func TestEventReader(t *testing.T) {
	in := newEventReader(strings.NewReader("\ufeffdata: a\n\nid: 7\ndata: b\ndata:c\r\n\r\nevent: x\ndata: d\n\n: nothing\n\ndata: cut"), 100)
	var got []string
	for {
		ev, err := in.next()
		if err != nil {
			break
		}
		got = append(got, fmt.Sprintf("%s/%s/%s", ev.name, ev.id, ev.data))
	}
	if want := "/7/b\nc x//d"; !strings.HasSuffix(strings.Join(got, " "), want) {
		t.Errorf("%q, want it to end in %q", got, want)
	}
}
