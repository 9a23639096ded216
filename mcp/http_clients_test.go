package mcp

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	sdktransport "github.com/mark3labs/mcp-go/client/transport"
	sdk "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-idem/mcp-idem/policy"
)

// frontOfSDK serves over HTTP what a server of mcp-go has.
func frontOfSDK(t *testing.T) *web {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read := Tool{Effect: policy.EffectRead}
	return startFront(t, "", HTTPConfig{}, func(c *Config) {
		c.Servers = []Server{{Name: "fake", Command: self, Env: []string{fakeMode + "=sdk", "GORACE=atexit_sleep_ms=0"}, Log: c.Log}}
		c.Policy = stubPolicy{"progress": read, "wait": read, "stopped": read}
	})
}

// webSDK is a client of mcp-go that has introduced itself.
func webSDK(t *testing.T, url, version string) *sdkClient {
	t.Helper()
	var options []sdktransport.StreamableHTTPCOption
	if version != modernVersion { // which has no stream of its own for what servers say
		options = append(options, sdktransport.WithContinuousListening()) //nolint:staticcheck // of the earlier protocol, which has it
	}
	way, err := sdktransport.NewStreamableHTTP(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	c := &sdkClient{}
	c.Client = client.NewClient(way, client.WithProtocolVersion(version), client.WithElicitationHandler(c), client.WithSamplingHandler(c), client.WithRootsHandler(c))
	c.OnNotification(func(n sdk.JSONRPCNotification) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.said = append(c.said, n)
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	hello := sdk.InitializeRequest{}
	hello.Params.ProtocolVersion, hello.Params.ClientInfo.Name = version, "t"
	if got, err := c.Initialize(t.Context(), hello); err != nil || got.ProtocolVersion != version {
		t.Fatalf("%v, %+v, want version %s", err, got, version)
	}
	return c
}

// TestFrontEverythingOfMCP: a client of mcp-go that has a session misses nothing.
// It tells of no cancellation, so that one comes by hand.
func TestFrontEverythingOfMCP(t *testing.T) {
	t.Parallel()
	w := frontOfSDK(t)
	c := webSDK(t, w.url, "2025-11-25")
	everything(t, c, "", 1)
	v := &visitor{web: w, session: c.GetSessionId()}
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		v.post(http.StatusAccepted, callLine(7000, "wait", ""))
	}()
	for end := time.Now().Add(10 * time.Second); c.text(t, "stopped") != "true"; time.Sleep(20 * time.Millisecond) {
		v.post(http.StatusAccepted, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7000}}`)
		if time.Now().After(end) {
			t.Fatal("the server was not told that the call is cancelled")
		}
	}
	<-waiting
}

// TestFrontStatelessSDK: nor does one of the stateless protocol, of what that has.
func TestFrontStatelessSDK(t *testing.T) {
	t.Parallel()
	c := webSDK(t, frontOfSDK(t).url, modernVersion)
	if got := c.text(t, "progress"); got != "done" {
		t.Errorf("progress: %q", got)
	}
	tools, err := c.ListTools(t.Context(), sdk.ListToolsRequest{})
	if err != nil || len(tools.Tools) < 8 {
		t.Errorf("tools/list: %v, %+v", err, tools)
	}
	read := sdk.ReadResourceRequest{}
	read.Params.URI = "user://7"
	if got, err := c.ReadResource(t.Context(), read); err != nil || len(got.Contents) != 1 {
		t.Errorf("resources/read: %v, %+v", err, got)
	}
	confirm := sdk.CallToolRequest{}
	confirm.Params.Name, confirm.Params.Arguments = "confirm", map[string]any{"n": 1}
	confirm.Params.Meta = &sdk.Meta{AdditionalFields: map[string]any{"mcp-idem/task": "t"}}
	if got, err := c.CallTool(t.Context(), confirm); err != nil || got.IsError {
		t.Errorf("a call of several round trips: %v, %+v", err, got)
	}
	cancels(t, c, "")
}

// TestFrontGoSDK: the protocol's own Go library is served in both eras.
func TestFrontGoSDK(t *testing.T) {
	t.Parallel()
	w := frontOfSDK(t)
	for _, version := range []string{"2025-06-18", "2025-11-25", modernVersion} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := gosdk.NewClient(&gosdk.Implementation{Name: "go-sdk", Version: "1"}, nil)
			s, err := c.Connect(t.Context(), &gosdk.StreamableClientTransport{Endpoint: w.url}, &gosdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("version %s", got)
			}
			tools, err := s.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) == 0 {
				t.Errorf("tools/list: %v, %+v", err, tools)
			}
			call := &gosdk.CallToolParams{Name: "grow", Meta: gosdk.Meta{"mcp-idem/task": version, "mcp-idem/step": "s"}}
			for i := range 2 {
				got, err := s.CallTool(t.Context(), call)
				if err != nil {
					t.Fatal(err)
				}
				if got.IsError || got.Meta["mcp-idem/state"] != "COMMITTED" || (got.Meta["mcp-idem/replayed"] == true) != (i > 0) {
					t.Errorf("call %d: %+v", i, got)
				}
			}
		})
	}
}
