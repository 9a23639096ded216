package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/client"
	sdktransport "github.com/mark3labs/mcp-go/client/transport"
	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem/policy"
)

// steps is how many messages of progress a server sends in a call: that of mcp-go
// queues 100 and drops the rest.
const steps = 90

// serveSDK is a server written with mcp-go that has one of everything.
func serveSDK() {
	s := sdkserver.NewMCPServer("sdk", "1", sdkserver.WithToolCapabilities(true), sdkserver.WithResourceCapabilities(true, true), sdkserver.WithPromptCapabilities(true),
		sdkserver.WithLogging(), sdkserver.WithElicitation(), sdkserver.WithRoots(), sdkserver.WithCompletions(), sdkserver.WithPaginationLimit(2),
		sdkserver.WithPromptCompletionProvider(sdkCompletion{}), sdkserver.WithResourceCompletionProvider(sdkCompletion{}),
		sdkserver.WithInstructions("Be kind."))
	s.EnableSampling()
	text := func(format string, a ...any) (*sdk.CallToolResult, error) {
		return sdk.NewToolResultText(fmt.Sprintf(format, a...)), nil
	}
	s.AddTool(sdk.NewTool("progress"), func(ctx context.Context, r sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for i := range steps {
			if err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i, "total": steps}); err != nil {
				return nil, err
			}
		}
		return text("done")
	})
	s.AddTool(sdk.NewTool("elicit"), func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r, err := s.RequestElicitation(ctx, sdk.ElicitationRequest{Params: sdk.ElicitationParams{Message: "who?", RequestedSchema: map[string]any{"type": "object"}}})
		if err != nil {
			return nil, err
		}
		return text("%s %v", r.Action, r.Content)
	})
	s.AddTool(sdk.NewTool("sample"), func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r, err := s.RequestSampling(ctx, sdk.CreateMessageRequest{CreateMessageParams: sdk.CreateMessageParams{MaxTokens: 9, SystemPrompt: "s"}}) //nolint:staticcheck // of the earlier protocol, which has it
		if err != nil {
			return nil, err
		}
		return text("%s %v", r.Model, r.Content.(sdk.TextContent).Text)
	})
	s.AddTool(sdk.NewTool("roots"), func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r, err := s.RequestRoots(ctx, sdk.ListRootsRequest{})
		if err != nil {
			return nil, err
		}
		return text("%s", r.Roots[0].URI)
	})
	s.AddTool(sdk.NewTool("log"), func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if err := s.SendLogMessageToClient(ctx, sdk.NewLoggingMessageNotification(sdk.LoggingLevelDebug, "l", "a word")); err != nil {
			return nil, err
		}
		return text("logged")
	})
	s.AddTool(sdk.NewTool("grow"), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.AddTool(sdk.NewTool("grown"), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("grown") })
		s.SendNotificationToAllClients(sdk.MethodNotificationResourceUpdated, map[string]any{"uri": "mem://1"})
		return text("grew")
	})
	var waiting atomic.Value
	waiting.Store("not begun")
	s.AddTool(sdk.NewTool("wait"), func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		waiting.Store("begun")
		select {
		case <-ctx.Done():
			waiting.Store("stopped")
			return nil, ctx.Err()
		case <-time.After(20 * time.Second):
			return text("waited")
		}
	})
	s.AddTool(sdk.NewTool("stopped"), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text("%v", waiting.Load())
	})
	var confirmed atomic.Int64
	s.AddTool(sdk.NewTool("confirm"), func(_ context.Context, r sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if sdkserver.ElicitationResponse(r.Params.InputResponses, "sure") == nil {
			return sdkserver.NewInputRequestBuilder("st-1").Elicit("sure", sdk.ElicitationParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object"}}).ToolResult(), nil
		}
		return text("confirmed %d", confirmed.Add(1))
	})
	for i := range 5 {
		s.AddResource(sdk.NewResource(fmt.Sprintf("mem://%d", i), fmt.Sprintf("r%d", i)), func(_ context.Context, r sdk.ReadResourceRequest) ([]sdk.ResourceContents, error) {
			return []sdk.ResourceContents{sdk.TextResourceContents{URI: r.Params.URI, Text: "text of " + r.Params.URI}}, nil
		})
		s.AddPrompt(sdk.NewPrompt(fmt.Sprintf("p%d", i)), func(_ context.Context, r sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return sdk.NewGetPromptResult("prompt "+r.Params.Name, nil), nil
		})
	}
	s.AddResourceTemplate(sdk.NewResourceTemplate("user://{id}", "users"), func(_ context.Context, r sdk.ReadResourceRequest) ([]sdk.ResourceContents, error) {
		return []sdk.ResourceContents{sdk.BlobResourceContents{URI: r.Params.URI, Blob: "AAEC"}}, nil
	})
	_ = sdkserver.ServeStdio(s)
}

// manyTools is how many tools the server of BenchmarkList has.
const manyTools = 1000

// serveListed is a server of many tools.
func serveListed() {
	s := sdkserver.NewMCPServer("sdk", "1", sdkserver.WithToolCapabilities(false))
	for i := range manyTools {
		s.AddTool(sdk.NewTool(fmt.Sprintf("tool_%d", i), sdk.WithDescription(fmt.Sprintf("Does what number %d does, and says so at some length, as tools do.", i)),
			sdk.WithReadOnlyHintAnnotation(false), sdk.WithString("path", sdk.Required(), sdk.Description("where")), sdk.WithNumber("n", sdk.Min(1))),
			func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return sdk.NewToolResultText("done"), nil
			})
	}
	_ = sdkserver.ServeStdio(s)
}

type sdkCompletion struct{}

func (sdkCompletion) CompletePromptArgument(_ context.Context, prompt string, a sdk.CompleteArgument, _ sdk.CompleteContext) (*sdk.Completion, error) {
	return &sdk.Completion{Values: []string{prompt + "." + a.Name + "=" + a.Value}}, nil
}

func (sdkCompletion) CompleteResourceArgument(_ context.Context, uri string, a sdk.CompleteArgument, _ sdk.CompleteContext) (*sdk.Completion, error) {
	return &sdk.Completion{Values: []string{uri + "." + a.Name + "=" + a.Value}}, nil
}

// sdkClient answers what servers ask, and notes what they say.
type sdkClient struct {
	*client.Client
	streams bool // it hears the server on several at once, over HTTP

	mu   sync.Mutex
	said []sdk.JSONRPCNotification
}

func (*sdkClient) Elicit(_ context.Context, r sdk.ElicitationRequest) (*sdk.ElicitationResult, error) {
	return &sdk.ElicitationResult{ElicitationResponse: sdk.ElicitationResponse{Action: sdk.ElicitationResponseActionAccept, Content: map[string]any{"to": r.Params.Message}}}, nil
}

func (*sdkClient) CreateMessage(_ context.Context, r sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
	return &sdk.CreateMessageResult{Model: "m", SamplingMessage: sdk.SamplingMessage{Role: sdk.RoleAssistant, Content: sdk.NewTextContent("after " + r.SystemPrompt)}}, nil
}

func (*sdkClient) ListRoots(context.Context, sdk.ListRootsRequest) (*sdk.ListRootsResult, error) {
	return &sdk.ListRootsResult{Roots: []sdk.Root{{URI: "file:///home", Name: "home"}}}, nil
}

// heard are the parameters of the notifications of a method, in order, once
// there are n.
func (c *sdkClient) heard(t *testing.T, method string, n int) (out []map[string]any) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		out = nil
		c.mu.Lock()
		for _, s := range c.said {
			if s.Method == method {
				out = append(out, s.Params.AdditionalFields)
			}
		}
		c.mu.Unlock()
		if len(out) >= n {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %s, want %d", len(out), method, n)
		}
	}
}

func (c *sdkClient) text(t *testing.T, tool string) string {
	t.Helper()
	r := sdk.CallToolRequest{}
	r.Params.Name = tool
	r.Params.Meta = &sdk.Meta{ProgressToken: "p-" + tool}
	got, err := c.CallTool(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if len(got.Content) != 1 || got.IsError {
		t.Fatalf("%s: %+v", tool, got)
	}
	return got.Content[0].(sdk.TextContent).Text
}

// behindGateway is a client of mcp-go before a gateway before as many servers of
// mcp-go as there are names.
func behindGateway(t *testing.T, tools stubPolicy, names ...string) *sdkClient {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Guard: realGuard(t, names...), Policy: tools, Log: testLog(t), Prefix: len(names) > 1, Identity: Identity{Task: []string{"flag"}, FlagTask: "t"}}
	for _, name := range names {
		cfg.Servers = append(cfg.Servers, Server{Name: name, Command: self, Env: []string{fakeMode + "=sdk", "GORACE=atexit_sleep_ms=0"}, Log: cfg.Log})
	}
	g, err := NewGateway(cfg)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := g.Serve(context.Background(), inR, outW)
		_ = outW.Close()
		done <- err
	}()
	c := &sdkClient{}
	c.Client = client.NewClient(sdktransport.NewIO(outR, inW, io.NopCloser(strings.NewReader(""))), client.WithProtocolVersion("2025-11-25"),
		client.WithElicitationHandler(c), client.WithSamplingHandler(c), client.WithRootsHandler(c))
	c.OnNotification(func(n sdk.JSONRPCNotification) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.said = append(c.said, n)
	})
	t.Cleanup(func() {
		_ = inW.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		g.Close()
	})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hello := sdk.InitializeRequest{}
	hello.Params.ProtocolVersion, hello.Params.ClientInfo.Name = "2025-11-25", "t"
	got, err := c.Initialize(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Instructions, "Be kind.") {
		t.Errorf("instructions: %q", got.Instructions)
	}
	return c
}

// TestEverythingOfMCP: a client and a server of mcp-go have everything of the
// protocol through the gateway that they have without it; and before two servers
// too, under their names.
func TestEverythingOfMCP(t *testing.T) {
	for _, servers := range [][]string{{"fake"}, {"one", "two"}} {
		t.Run(strings.Join(servers, "+"), func(t *testing.T) {
			t.Parallel()
			read := Tool{Effect: policy.EffectRead}
			c := behindGateway(t, stubPolicy{"progress": read, "wait": read, "stopped": read}, servers...)
			for _, name := range servers {
				prefix := ""
				if len(servers) > 1 {
					prefix = name + separator
				}
				everything(t, c, prefix, len(servers))
				cancels(t, c, prefix)
			}
		})
	}
}

func everything(t *testing.T, c *sdkClient, prefix string, servers int) {
	ctx := t.Context()
	c.mu.Lock()
	c.said = nil
	c.mu.Unlock()

	if got := c.text(t, prefix+"progress"); got != "done" {
		t.Errorf("progress: %q", got)
	}
	told := c.heard(t, "notifications/progress", steps)
	if c.streams { // it reads both at once
		slices.SortFunc(told, func(a, b map[string]any) int { return int(a["progress"].(float64) - b["progress"].(float64)) })
	}
	for i, p := range told {
		if p["progress"] != float64(i) || p["progressToken"] != "p-"+prefix+"progress" {
			t.Fatalf("message %d of progress: %v", i, p)
		}
	}
	for tool, want := range map[string]string{"elicit": "accept map[to:who?]", "sample": "m after s", "roots": "file:///home"} {
		if got := c.text(t, prefix+tool); got != want {
			t.Errorf("%s: %q, want %q", tool, got, want)
		}
	}

	level := sdk.SetLevelRequest{}
	level.Params.Level = sdk.LoggingLevelDebug
	if err := c.SetLevel(ctx, level); err != nil { //nolint:staticcheck // of the earlier protocol, which has it
		t.Errorf("logging/setLevel: %v", err)
	}
	c.text(t, prefix+"log")
	if got := c.heard(t, "notifications/message", 1); got[0]["data"] != "a word" {
		t.Errorf("log: %v", got)
	}

	// On pages of two, every one of them.
	tools, err := c.ListTools(ctx, sdk.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, tool := range tools.Tools {
		named = append(named, tool.Name)
	}
	for _, want := range []string{"elicit", "grow", "log", "progress", "roots", "sample", "stopped", "wait"} {
		if !slices.Contains(named, prefix+want) {
			t.Errorf("no %s in %v", prefix+want, named)
		}
	}
	resources, err := c.ListResources(ctx, sdk.ListResourcesRequest{})
	if err != nil || len(resources.Resources) != 5*servers {
		t.Errorf("resources/list: %v, %+v", err, resources)
	}
	prompts, err := c.ListPrompts(ctx, sdk.ListPromptsRequest{})
	if err != nil || len(prompts.Prompts) != 5*servers {
		t.Errorf("prompts/list: %v, %+v", err, prompts)
	}
	templates, err := c.ListResourceTemplates(ctx, sdk.ListResourceTemplatesRequest{})
	if err != nil || len(templates.ResourceTemplates) != servers {
		t.Errorf("resources/templates/list: %v, %+v", err, templates)
	}

	for _, uri := range []string{"mem://3", "user://7"} {
		r := sdk.ReadResourceRequest{}
		r.Params.URI = uri
		if got, err := c.ReadResource(ctx, r); err != nil || len(got.Contents) != 1 {
			t.Errorf("resources/read %s: %v, %+v", uri, err, got)
		}
	}
	missing := sdk.ReadResourceRequest{}
	missing.Params.URI = "nothing://here"
	if _, err := c.ReadResource(ctx, missing); err == nil {
		t.Error("a resource that nobody has was read")
	}
	get := sdk.GetPromptRequest{}
	get.Params.Name = prefix + "p4"
	if got, err := c.GetPrompt(ctx, get); err != nil || got.Description != "prompt p4" {
		t.Errorf("prompts/get: %v, %+v", err, got)
	}
	for ref, want := range map[any]string{
		sdk.PromptReference{Type: "ref/prompt", Name: prefix + "p1"}:    "p1.a=v",
		sdk.ResourceReference{Type: "ref/resource", URI: "user://{id}"}: "user://{id}.a=v",
	} {
		r := sdk.CompleteRequest{}
		r.Params.Ref, r.Params.Argument = ref, sdk.CompleteArgument{Name: "a", Value: "v"}
		if got, err := c.Complete(ctx, r); err != nil || cmp.Diff([]string{want}, got.Completion.Values) != "" {
			t.Errorf("completion/complete %v: %v, %+v", ref, err, got)
		}
	}

	sub := sdk.SubscribeRequest{}
	sub.Params.URI = "mem://1"
	if err := c.Subscribe(ctx, sub); err != nil { //nolint:staticcheck // of the earlier protocol, which has it
		t.Errorf("resources/subscribe: %v", err)
	}
	c.text(t, prefix+"grow")
	c.heard(t, "notifications/tools/list_changed", 1)
	if got := c.heard(t, "notifications/resources/updated", 1); got[0]["uri"] != "mem://1" {
		t.Errorf("updated: %v", got)
	}
	if got := c.text(t, prefix+"grown"); got != "grown" {
		t.Errorf("a tool that came later: %q", got)
	}
	unsub := sdk.UnsubscribeRequest{}
	unsub.Params.URI = "mem://1"
	if err := c.Unsubscribe(ctx, unsub); err != nil { //nolint:staticcheck // of the earlier protocol, which has it
		t.Errorf("resources/unsubscribe: %v", err)
	}

	if err := c.Ping(ctx); err != nil { //nolint:staticcheck // of the earlier protocol, which has it
		t.Errorf("ping: %v", err)
	}
}

// cancels: a cancellation of a call that only reads reaches the server.
func cancels(t *testing.T, c *sdkClient, prefix string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		wait := sdk.CallToolRequest{}
		wait.Params.Name = prefix + "wait"
		_, err := c.CallTool(ctx, wait)
		ended <- err
	}()
	c.waits(t, prefix, "begun") // before that the server forgets that it was cancelled
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	c.waits(t, prefix, "stopped")
}

// waits returns when the tool wait is that far.
func (c *sdkClient) waits(t *testing.T, prefix, state string) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); c.text(t, prefix+"stopped") != state; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the call of wait is not %s", state)
		}
	}
}
