package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	sdktransport "github.com/mark3labs/mcp-go/client/transport"
	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

// shop is a server written with mcp-go whose tools are guarded from the inside.
type shop struct {
	t       *testing.T
	mu      sync.Mutex
	effects map[string]int
	keys    map[string]string
	hold    chan struct{} // nil: the tool slow does not wait
	server  *sdkserver.MCPServer
	web     *httptest.Server
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, effects: map[string]int{}, keys: map[string]string{}, hold: make(chan struct{})}
	set, err := policy.New(policy.Config{Servers: []string{"shop"}, Tools: []policy.Tool{{Match: "shop/look", Effect: policy.EffectRead}}})
	if err != nil {
		t.Fatal(err)
	}
	owner, processes, err := ThisProcess()
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idem.New(idem.Config{Store: memory(t), Policy: set, Owner: owner, Processes: processes})
	if err != nil {
		t.Fatal(err)
	}
	mw, err := Middleware(MiddlewareConfig{Guard: guard, Policy: PolicyOf(set), Server: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	srv := sdkserver.NewMCPServer("shop", "1", sdkserver.WithToolHandlerMiddleware(mw), sdkserver.WithElicitation())
	s.server = srv
	add := func(name string, f sdkserver.ToolHandlerFunc) {
		srv.AddTool(sdk.NewTool(name), func(ctx context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			s.mu.Lock()
			s.effects[name]++
			s.keys[name] = KeyFrom(ctx)
			s.mu.Unlock()
			return f(ctx, req)
		})
	}
	add("buy", func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{sdk.NewTextContent("bought")}, StructuredContent: json.RawMessage(`{"id":9007199254740993,"p":1.0}`)}, nil
	})
	add("look", func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return sdk.NewToolResultText("seen"), nil
	})
	add("fails", func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, errors.New("socket hang up")
	})
	add("panics", func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) { panic("oh") })
	add("slow", func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		<-s.hold
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return sdk.NewToolResultText("done"), nil
	})
	add("asks", func(_ context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		said := sdkserver.ElicitationResponse(req.Params.InputResponses, "sure")
		if req.Params.RequestState != "st" || said == nil {
			form := map[string]any{"type": "object", "properties": map[string]any{"yes": map[string]any{"type": "boolean"}}}
			return sdkserver.NewInputRequestBuilder("st").Elicit("sure", sdk.ElicitationParams{Message: "Sure?", RequestedSchema: form}).ToolResult(), nil
		}
		return sdk.NewToolResultText("asked: " + string(said.Action)), nil
	})
	s.web = httptest.NewServer(sdkserver.NewStreamableHTTPServer(srv))
	t.Cleanup(func() { s.web.CloseClientConnections(); s.web.Close() })
	return s
}

func (s *shop) count(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[tool]
}

func (s *shop) client() *client.Client {
	s.t.Helper()
	tr, err := sdktransport.NewStreamableHTTP(s.web.URL + "/mcp")
	if err != nil {
		s.t.Fatal(err)
	}
	c := client.NewClient(tr)
	if err := c.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	var hello sdk.InitializeRequest
	hello.Params.ProtocolVersion, hello.Params.ClientInfo = "2025-11-25", sdk.Implementation{Name: "t", Version: "1"}
	if _, err := c.Initialize(s.t.Context(), hello); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// call returns the result as it came over the wire.
func (s *shop) call(c *client.Client, tool, step string) string {
	s.t.Helper()
	var r sdk.CallToolRequest
	r.Params.Name = tool
	r.Params.Arguments = map[string]any{"n": 1}
	r.Params.Meta = &sdk.Meta{AdditionalFields: map[string]any{"mcp-idem/task": "t", "mcp-idem/step": step}}
	got, err := c.CallTool(s.t.Context(), r)
	if err != nil {
		return err.Error()
	}
	raw, err := json.Marshal(got)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

func wants(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("no %q in %s", p, got)
		}
	}
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	one, two := s.client(), s.client()
	wants(t, s.call(one, "buy", "s1"), "bought", `"id":9007199254740993,"p":1.0`, `"mcp-idem/state":"COMMITTED"`)
	for range 2 {
		wants(t, s.call(two, "buy", "s1"), "bought", `"id":9007199254740993,"p":1.0`, `"mcp-idem/replayed":true`)
	}
	if n := s.count("buy"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if key := s.keys["buy"]; len(key) != 32 {
		t.Errorf("the handler's key is %q", key)
	}
	s.call(one, "look", "s2")
	s.call(one, "look", "s2")
	if n := s.count("look"); n != 2 || s.keys["look"] != "" {
		t.Errorf("a read was guarded: %d calls", n)
	}
}

// TestMiddlewareUnknown: how far a handler came that fails or panics is not known.
func TestMiddlewareUnknown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.client()
	for _, tool := range []string{"fails", "panics"} {
		for range 2 {
			wants(t, s.call(c, tool, tool), `"mcp-idem/code":"NEEDS_REVIEW"`, `"isError":true`)
		}
		if n := s.count(tool); n != 1 {
			t.Errorf("%s: %d effects", tool, n)
		}
	}
}

// TestMiddlewareDetached: a client that leaves ends no attempt.
func TestMiddlewareDetached(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.client()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		var r sdk.CallToolRequest
		r.Params.Name = "slow"
		r.Params.Arguments = map[string]any{"n": 1}
		r.Params.Meta = &sdk.Meta{AdditionalFields: map[string]any{"mcp-idem/task": "t", "mcp-idem/step": "s"}}
		_, err := c.CallTool(ctx, r)
		left <- err
	}()
	for end := time.Now().Add(5 * time.Second); s.count("slow") == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	cancel()
	if err := <-left; err == nil {
		t.Fatal("it has an answer")
	}
	close(s.hold)
	other := s.client()
	wants(t, s.call(other, "slow", "s"), "done")
	if n := s.count("slow"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestMiddlewareCrowd: many ask for the same at once, and every answer is a value
// of its own.
func TestMiddlewareCrowd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := s.client()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { wants(t, s.call(c, "buy", fmt.Sprint("s", i%4)), "bought") })
	}
	wg.Wait()
	if n := s.count("buy"); n != 4 {
		t.Errorf("%d effects of 4 steps", n)
	}
}

func TestMiddlewareRefusesTasks(t *testing.T) {
	t.Parallel()
	mw, err := Middleware(MiddlewareConfig{Guard: &stubGuard{}, Policy: stubPolicy{}, Server: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	var r sdk.CallToolRequest
	r.Params.Name, r.Params.Task = "buy", &sdk.TaskParams{}
	got, err := mw(func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		t.Error("the handler was called")
		return nil, nil
	})(t.Context(), r)
	if err != nil || !got.IsError {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Middleware(MiddlewareConfig{}); err == nil {
		t.Error("without a guard: no error")
	}
}
