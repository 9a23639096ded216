package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// The files of a tickets server's directory that steer it from outside: while
// HoldFile exists, an answer to create_ticket waits after the ticket is on
// disk, and HeldFile says that one does.
const (
	HoldFile = "hold"
	HeldFile = "held"
)

// TicketsMain runs the tickets server over standard input and output until its
// input ends. It returns the exit status.
func TicketsMain(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet("__tickets", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("dir", "", "where tickets are kept; it must exist")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if *dir == "" {
		_, _ = fmt.Fprintln(stderr, "__tickets: -dir is missing")
		return 2
	}
	err := server.ServeStdio(newTicketsServer(*dir))
	if err != nil && !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(stderr, "__tickets:", err)
		return 1
	}
	return 0
}

type createArgs struct {
	OrderID           string `json:"order_id" jsonschema:"The order that the ticket is about"`
	Title             string `json:"title" jsonschema:"One line"`
	ExternalReference string `json:"external_reference,omitempty" jsonschema:"The caller's own name for the ticket; stored and searchable but not enforced"`
}

type searchArgs struct {
	ExternalReference string `json:"external_reference" jsonschema:"As given to create_ticket"`
}

type searchResult struct {
	Items []Ticket `json:"items"`
}

func newTicketsServer(dir string) *server.MCPServer {
	book := &ticketBook{path: filepath.Join(dir, TicketsFile)}
	s := server.NewMCPServer("tickets", "1.0.0")
	s.AddTool(
		mcpgo.NewTool("create_ticket",
			mcpgo.WithDescription("Opens a ticket. Every call opens one."),
			mcpgo.WithInputSchema[createArgs]()),
		mcpgo.NewStructuredToolHandler(func(ctx context.Context, _ mcpgo.CallToolRequest, a createArgs) (Ticket, error) {
			t, err := book.add(Ticket{OrderID: a.OrderID, Title: a.Title, ExternalReference: a.ExternalReference})
			if err != nil {
				return Ticket{}, err
			}
			return t, hold(ctx, dir, t.ID)
		}))
	s.AddTool(
		mcpgo.NewTool("search_tickets",
			mcpgo.WithDescription("Finds tickets by their external reference."),
			mcpgo.WithReadOnlyHintAnnotation(true),
			mcpgo.WithInputSchema[searchArgs]()),
		mcpgo.NewStructuredToolHandler(func(_ context.Context, _ mcpgo.CallToolRequest, a searchArgs) (searchResult, error) {
			all, err := ReadTickets(dir)
			if err != nil {
				return searchResult{}, err
			}
			found := searchResult{Items: []Ticket{}} // an empty list, not null
			for _, t := range all {
				if t.ExternalReference == a.ExternalReference {
					found.Items = append(found.Items, t)
				}
			}
			return found, nil
		}))
	return s
}

// hold keeps an answer back while HoldFile exists. It is what opens the window
// between an effect and its record wide enough to aim a SIGKILL at.
func hold(ctx context.Context, dir, id string) error {
	path := filepath.Join(dir, HoldFile)
	if !exists(path) {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, HeldFile), []byte(id+"\n"), 0o600); err != nil {
		return err
	}
	for exists(path) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
