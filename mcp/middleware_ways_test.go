package mcp

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	sdktransport "github.com/mark3labs/mcp-go/client/transport"
	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"
)

// yes is a person who accepts.
type yes struct{}

func (yes) Elicit(context.Context, sdk.ElicitationRequest) (*sdk.ElicitationResult, error) {
	return &sdk.ElicitationResult{ElicitationResponse: sdk.ElicitationResponse{Action: sdk.ElicitationResponseActionAccept, Content: map[string]any{"yes": true}}}, nil
}

func mustHello(t *testing.T, c *client.Client, version string) *client.Client {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var hello sdk.InitializeRequest
	hello.Params.ProtocolVersion, hello.Params.ClientInfo = version, sdk.Implementation{Name: "t", Version: "1"}
	if _, err := c.Initialize(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	return c
}

// ways are clients of a shop by every transport.
func (s *shop) ways(version string) map[string]*client.Client {
	s.t.Helper()
	opts := []client.ClientOption{client.WithElicitationHandler(yes{}), client.WithProtocolVersion(version)}
	out := map[string]*client.Client{}
	web, err := sdktransport.NewStreamableHTTP(s.web.URL + "/mcp")
	if err != nil {
		s.t.Fatal(err)
	}
	out["http"] = mustHello(s.t, client.NewClient(web, opts...), version)
	in, err := client.NewInProcessClientWithOptions(s.server, opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	out["in process"] = mustHello(s.t, in, version)

	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = sdkserver.NewStdioServer(s.server).Listen(ctx, toServer, fromServer)
	}()
	s.t.Cleanup(func() { cancel(); _ = fromClient.Close(); <-over })
	out["stdio"] = mustHello(s.t, client.NewClient(sdktransport.NewIO(toClient, fromClient, io.NopCloser(strings.NewReader(""))), opts...), version)
	return out
}

// TestMiddlewareWays: one step is one operation whichever way it comes, in both
// eras.
func TestMiddlewareWays(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			s := newShop(t)
			var op string
			for way, c := range s.ways(version) {
				got := s.call(c, "buy", "s1")
				wants(t, got, `"id":9007199254740993,"p":1.0`)
				var r struct {
					Meta map[string]any `json:"_meta"`
				}
				if err := json.Unmarshal([]byte(got), &r); err != nil {
					t.Fatal(err)
				}
				this, _ := r.Meta["mcp-idem/op"].(string)
				if op == "" {
					op = this
				}
				if this != op || op == "" {
					t.Errorf("%s: operation %q, before %q", way, this, op)
				}
			}
			if n := s.count("buy"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// TestMiddlewareInput: a handler that asks for input is one operation with what
// follows, where the client brings the input by itself and where mcp-go asks it.
func TestMiddlewareInput(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			s := newShop(t)
			runs := 0
			for way, c := range s.ways(version) {
				for range 2 { // the second is replayed
					wants(t, s.call(c, "asks", way), "asked: accept", `"mcp-idem/state":"COMMITTED"`, `"mcp-idem/attempt":2`)
				}
				if runs += 2; s.count("asks") != runs {
					t.Fatalf("%s: the handler ran %d times, want %d", way, s.count("asks"), runs)
				}
			}
		})
	}
}

// TestMiddlewareOccurrences: without a step, what is asked for again by who has
// the answer is meant again; a session by itself is a task.
func TestMiddlewareOccurrences(t *testing.T) {
	s := newShop(t)
	c := s.ways("2025-11-25")["http"]
	for i := range 3 {
		var r sdk.CallToolRequest
		r.Params.Name = "buy"
		if _, err := c.CallTool(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if n := s.count("buy"); n != i+1 {
			t.Errorf("%d effects after %d asks", n, i+1)
		}
	}
}
