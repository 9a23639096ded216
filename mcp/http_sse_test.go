package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem"
)

// startSSE is a gateway before a server written with mcp-go that speaks on a
// stream of events.
func startSSE(t *testing.T) (r *rig, effects *atomic.Int32, web *httptest.Server) {
	t.Helper()
	effects = new(atomic.Int32)
	srv := sdkserver.NewMCPServer("fake", "1")
	srv.AddTool(sdk.NewTool("echo"), func(ctx context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		effects.Add(1)
		if req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil {
			_ = srv.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": 1})
		}
		return sdk.NewToolResultText("hello"), nil
	})
	srv.AddTool(sdk.NewTool("cut"), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		effects.Add(1)
		web.CloseClientConnections()
		return sdk.NewToolResultText("never seen"), nil
	})
	web = httptest.NewUnstartedServer(nil)
	web.Start()
	web.Config.Handler = sdkserver.NewSSEServer(srv, sdkserver.WithBaseURL(web.URL))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	r = startServer(t, Server{Name: "fake", URL: web.URL + "/sse", SSE: true, Log: testLog(t)}, "", stubPolicy{})
	r.send(initLine)
	r.expect(`"id":"init"`, `"fake"`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r, effects, web
}

func TestSSEUpstream(t *testing.T) {
	t.Parallel()
	r, effects, _ := startSSE(t)
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.expect(`"id":1`, `"echo"`)
	r.call("2", "echo", `{}`, `"progressToken":"p"`)
	r.expect("notifications/progress", `"p"`)
	r.expect(`"id":2`, "hello", "mcp-idem/op")
	if err := r.close(); err != nil {
		t.Error(err)
	}
	if n := effects.Load(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestSSEThatBreaks: with the stream the answer is gone, and nothing is sent
// again. What comes next gets another one.
func TestSSEThatBreaks(t *testing.T) {
	t.Parallel()
	r, effects, _ := startSSE(t)
	r.call("1", "cut", `{}`, "")
	r.expect(`"id":1`)
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassAmbiguous || o.Ended != idem.EndByBytes {
		t.Errorf("%+v", o)
	}
	r.call("2", "echo", `{}`, "")
	r.expect(`"id":2`, "hello")
	if n := effects.Load(); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// TestSSEElsewhere: a server must not make us post to another one.
func TestSSEElsewhere(t *testing.T) {
	t.Parallel()
	var posted atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posted.Add(1) }))
	defer other.Close()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("event: endpoint\ndata: " + other.URL + "/x\n\n"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer web.Close()
	r := startServer(t, Server{Name: "fake", URL: web.URL, SSE: true, Log: testLog(t)}, "", stubPolicy{})
	r.send(initLine)
	r.expect(`"id":"init"`, `"error"`)
	if posted.Load() != 0 {
		t.Error("it was posted to another server")
	}
}
