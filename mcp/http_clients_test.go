package mcp

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
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
	c := &sdkClient{streams: true}
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
	c.waits(t, "", "begun")
	v.post(http.StatusAccepted, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7000}}`)
	c.waits(t, "", "stopped")
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

// TestFrontStatelessProgress: requests of one principal that share the servers have
// the same ids and tokens of progress, and each hears only of its own.
func TestFrontStatelessProgress(t *testing.T) {
	t.Parallel()
	v := startFront(t, "", HTTPConfig{}).visitor()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			got := v.post(http.StatusOK, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steps","_meta":{"progressToken":7,`+helloMeta+`}}}`, `"done"`)
			if n := strings.Count(got, `"progressToken":7`); n != steps {
				t.Errorf("%d messages of progress, want %d", n, steps)
			}
		})
	}
	all.Wait()
}

// TestFrontSubscriptions: a subscription of a client without a session ends with
// its client, or with the gateway.
func TestFrontSubscriptions(t *testing.T) {
	t.Parallel()
	w := frontOfSDK(t)
	v := w.visitor()
	listen := func(ctx context.Context, id string) *bufio.Scanner {
		resp, err := v.request(ctx, http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{`+helloMeta+`}}}`)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return bufio.NewScanner(resp.Body)
	}
	until := func(in *bufio.Scanner, text string) bool {
		for in.Scan() {
			if strings.Contains(in.Text(), text) {
				return true
			}
		}
		return false
	}
	ctx, leave := context.WithCancel(t.Context())
	first, second := listen(ctx, `"a"`), listen(t.Context(), `1`)
	for in, id := range map[*bufio.Scanner]string{first: `"a"`, second: `1`} {
		if !until(in, `"io.modelcontextprotocol/subscriptionId":`+id) {
			t.Fatalf("subscription %s is not acknowledged", id)
		}
	}
	v.post(http.StatusOK, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"grow","_meta":{`+helloMeta+`}}}`, "grew")
	for _, in := range []*bufio.Scanner{first, second} {
		if !until(in, "list_changed") {
			t.Fatal("the change is not told")
		}
	}
	leave()
	w.front.mu.Lock()
	up := w.front.shared[principal{tenant: "default"}].ups[0]
	w.front.mu.Unlock()
	pending := func() int {
		c := up.live.Load()
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.pending)
	}
	for end := time.Now().Add(10 * time.Second); pending() != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests are under way, want 1", pending())
		}
	}
	began := time.Now()
	w.front.Close(t.Context())
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("it took %s to end", took)
	}
	if until(second, "list_changed") {
		t.Error("the subscription goes on")
	}
}
