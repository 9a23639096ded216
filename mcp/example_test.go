package mcp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mark3labs/mcp-go/client"
	sdk "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/mcp"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// newGuard is a guard for the tools of one server. One that is to outlast its
// process keeps its ledger in a boltstore or a pgstore.
func newGuard(policies *policy.Set) (*idem.Guard, error) {
	owner, processes, err := mcp.ThisProcess()
	if err != nil {
		return nil, err
	}
	return idem.New(idem.Config{Store: memstore.New(memstore.Config{}), Policy: policies, Owner: owner, Processes: processes})
}

// A server that sends mail guards its tool with one more option. A client that
// asks again for the same step gets the first answer.
func ExampleMiddleware() {
	policies, err := policy.New(policy.Config{Servers: []string{"post"}})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := newGuard(policies)
	if err != nil {
		log.Fatal(err)
	}
	guarded, err := mcp.Middleware(mcp.MiddlewareConfig{Guard: guard, Policy: mcp.PolicyOf(policies), Server: "post"})
	if err != nil {
		log.Fatal(err)
	}
	post := server.NewMCPServer("post", "1.0", server.WithToolHandlerMiddleware(guarded))
	sent := 0
	post.AddTool(sdk.NewTool("send_mail", sdk.WithString("to")), func(_ context.Context, req sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		sent++
		return sdk.NewToolResultText(fmt.Sprintf("mail %d to %s", sent, req.GetString("to", ""))), nil
	})

	ctx := context.Background()
	agent, err := client.NewInProcessClient(post)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := agent.Initialize(ctx, sdk.InitializeRequest{}); err != nil {
		log.Fatal(err)
	}
	var ask sdk.CallToolRequest
	ask.Params.Name = "send_mail"
	ask.Params.Arguments = map[string]any{"to": "bo@example.org"}
	ask.Params.Meta = &sdk.Meta{AdditionalFields: map[string]any{"mcp-idem/task": "invite", "mcp-idem/step": "1"}}
	for range 2 {
		said, err := agent.CallTool(ctx, ask)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(said.Content[0].(sdk.TextContent).Text, said.Meta.AdditionalFields["mcp-idem/replayed"])
	}
	// Output:
	// mail 1 to bo@example.org <nil>
	// mail 1 to bo@example.org true
}
