// This file is compiled together with the fixture of mcp-go's own conformance
// tests (examples/conformance), whose main it replaces: it offers the fixture's
// tools, resources and prompts over stdio too, beside tools that the suite's newer
// scenarios need.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// main serves "stdio" or "http"; with the latter it prints the URL.
func main() {
	options := []server.ServerOption{
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithCompletions(),
		server.WithLogging(),
		server.WithElicitation(),
	}
	if os.Args[1] == "http" {
		options = append(options, server.WithToolHandlerMiddleware(unhurried))
	}
	s := server.NewMCPServer("mcp-go-conformance", "1.0.0", options...)
	s.EnableSampling()
	registerTools(s)
	registerResources(s)
	registerPrompts(s)
	registerMore(s)
	if os.Args[1] == "stdio" {
		if err := server.ServeStdio(s); err != nil {
			log.Fatal(err)
		}
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s))
	fmt.Printf("http://%s/mcp\n", l.Addr())
	log.Fatal(http.Serve(l, mux))
}

// unhurried lets a notification out before the answer: over HTTP mcp-go drops the
// one that it is about to write when a tool returns, four times in five. Over stdio
// nothing is lost, and nothing is slowed down.
func unhurried(next handler) handler {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		defer func() {
			switch r.Params.Name {
			case "test_tool_with_logging", "test_tool_with_progress":
				time.Sleep(50 * time.Millisecond)
			}
		}()
		return next(ctx, r)
	}
}

type handler = server.ToolHandlerFunc

func registerMore(s *server.MCPServer) {
	for name, h := range map[string]handler{
		"test_input_required_result_elicitation":     asks("", elicits("user_name", "name", "string")),
		"test_input_required_result_sampling":        asks("", samples("capital_question")),
		"test_input_required_result_list_roots":      asks("", roots("client_roots")),
		"test_input_required_result_request_state":   asks("state-1", elicits("confirm", "ok", "boolean")),
		"test_input_required_result_tampered_state":  asks("signed-1", elicits("confirm", "ok", "boolean")),
		"test_input_required_result_multiple_inputs": asks("all-1", elicits("user_name", "name", "string"), samples("greeting"), roots("client_roots")),
		"test_input_required_result_multi_round":     rounds,
		"test_input_required_result_capabilities":    capabilities,
		"test_logging_tool":                          logs(s),
		"test_streaming_elicitation":                 asks("", elicits("user_name", "name", "string")),
		"test_trigger_tool_change":                   func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return changed(s, true) },
		"test_trigger_prompt_change":                 func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return changed(s, false) },
	} {
		s.AddTool(mcp.NewTool(name, mcp.WithDescription("For one scenario of the suite")), h)
	}
	s.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", json.RawMessage(schema)), said)
	s.AddTool(mcp.NewToolWithRawSchema("test_custom_header", "A tool with an argument that is a header too",
		json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)), said)
	s.AddPrompt(mcp.NewPrompt("test_input_required_result_prompt", mcp.WithPromptDescription("Asks before it answers")), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		ask := elicits("user_context", "context", "string")
		if _, there := server.InputResponse(r.Params.InputResponses, "user_context"); !there {
			b := server.NewInputRequestBuilder("")
			ask.to(b)
			return b.PromptResult(), nil
		}
		return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent("with context")}}}, nil
	})
}

func said(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText("done"), nil
}

// question is one thing that a tool wants to know of its client.
type question struct {
	id string
	to func(*server.InputRequestBuilder)
}

func elicits(id, property, kind string) question {
	return question{id, func(b *server.InputRequestBuilder) {
		b.Elicit(id, mcp.ElicitationParams{Message: id + "?", RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{property: map[string]any{"type": kind}}, "required": []string{property},
		}})
	}}
}

func samples(id string) question {
	return question{id, func(b *server.InputRequestBuilder) {
		b.Sample(id, mcp.CreateMessageParams{MaxTokens: 100, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(id + "?")}}})
	}}
}

func roots(id string) question {
	return question{id, func(b *server.InputRequestBuilder) { b.Roots(id) }}
}

// asks is a tool that wants every question answered, and its state back unchanged.
func asks(state string, all ...question) handler {
	return func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		b := server.NewInputRequestBuilder(state)
		whole := true
		for _, q := range all {
			answer, there := server.InputResponse(r.Params.InputResponses, q.id)
			raw, err := json.Marshal(answer)
			if there && (err != nil || len(raw) == 0 || raw[0] != '{') {
				return nil, fmt.Errorf("the answer to %s is no object", q.id)
			}
			whole = whole && there
			q.to(b)
		}
		switch {
		case !whole:
			return b.ToolResult(), nil
		case r.Params.RequestState != state:
			return nil, fmt.Errorf("this is not the state that was given out")
		}
		return mcp.NewToolResultText("state-ok"), nil
	}
}

func rounds(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	n := map[string]int{"": 1, "round-1": 2, "round-2": 3}[r.Params.RequestState]
	if n == 3 {
		return mcp.NewToolResultText("three rounds"), nil
	}
	b := server.NewInputRequestBuilder(fmt.Sprintf("round-%d", n))
	elicits(fmt.Sprintf("step%d", n), "value", "string").to(b)
	return b.ToolResult(), nil
}

// capabilities asks for no more than the client can do.
func capabilities(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	b := server.NewInputRequestBuilder("")
	can := r.Params.Meta.ClientCapabilities()
	if can != nil && can.Elicitation != nil {
		elicits("user_name", "name", "string").to(b)
	}
	if can != nil && can.Sampling != nil {
		samples("greeting").to(b)
	}
	return b.ToolResult(), nil
}

func logs(s *server.MCPServer) handler {
	return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = s.SendLogMessageToClient(ctx, mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, "conformance", "a message"))
		return mcp.NewToolResultText("logged"), nil
	}
}

// changed lets a list change, and back.
func changed(s *server.MCPServer, tools bool) (*mcp.CallToolResult, error) {
	if tools {
		s.AddTool(mcp.NewTool("test_passing_by"), said)
		s.DeleteTools("test_passing_by")
	} else {
		s.AddPrompt(mcp.NewPrompt("test_passing_by"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { return nil, nil })
		s.DeletePrompts("test_passing_by")
	}
	return mcp.NewToolResultText("changed"), nil
}

// schema is what scenario json-schema-2020-12 wants to see unchanged.
const schema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {
		"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]}, "phone": {"type": "string"}, "email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]}, "else": {"required": ["email"]},
	"additionalProperties": false
}`
