// Package demo shows what the gateway is for: an agent's call dies between its
// effect and its record, and is asked again, once with the guard in between and
// once without. Everything runs for real: processes, SIGKILL, files on disk.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// patience bounds every wait of the demo.
const patience = 9 * time.Second

// ErrDuplicate says that the guarded run did not end with exactly one effect.
var ErrDuplicate = errors.New("demo: the guarded run did not end with exactly one effect")

var order = map[string]any{"order_id": "123", "title": "Order 123 arrived broken"}

// Run shows both runs on out and closes with the line
// "effects: guarded=N unguarded=M", counted in the upstream's own files. self
// is the gateway's executable, which also contains the upstream. What Run
// starts and writes is gone when it returns. The error is ErrDuplicate when
// the guarded run has any other count than one.
func Run(ctx context.Context, out io.Writer, self string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "mcp-idem-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	say := newTimeline(out)
	say.plain("An agent opens a ticket for order 123. The ticket is made, and the process")
	say.plain("is killed before anybody hears of it. The agent asks again.")

	say.title("With the guard: agent -> mcp-idem-server -> tickets")
	guarded, err := runGuarded(ctx, say, self, filepath.Join(dir, "guarded"))
	if err != nil {
		return fmt.Errorf("demo: with the guard: %w", err)
	}
	say.title("Without: agent -> tickets")
	unguarded, err := runUnguarded(ctx, say, self, filepath.Join(dir, "unguarded"))
	if err != nil {
		return fmt.Errorf("demo: without the guard: %w", err)
	}
	say.plain("")
	say.plain("effects: guarded=%d unguarded=%d", guarded, unguarded)
	if guarded != 1 {
		return ErrDuplicate
	}
	return nil
}

// runUnguarded kills the upstream in the window and asks its successor again.
func runUnguarded(ctx context.Context, say *timeline, self, dir string) (int, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	start := func() *exec.Cmd { return exec.Command(self, "__tickets", "-dir", dir) }
	if err := dieInWindow(ctx, say, start(), dir, "the tickets server", nil); err != nil {
		return 0, err
	}
	c, err := connect(ctx, start())
	if err != nil {
		return 0, err
	}
	defer c.Close(time.Second)
	say.event("tickets", "starts again")
	say.event("agent", "got no answer, so it calls create_ticket again")
	m, err := c.Call(ctx, "create_ticket", order, nil)
	if err != nil {
		return 0, err
	}
	say.event("tickets", "answers %s: the order now has two tickets", ticketOf(m))
	return count(say, dir)
}

// dieInWindow starts cmd, calls create_ticket through it, and kills it with
// SIGKILL once the ticket is on disk and its answer held back.
func dieInWindow(ctx context.Context, say *timeline, cmd *exec.Cmd, dir, victim string, meta map[string]any) error {
	holdFile := filepath.Join(dir, HoldFile)
	if err := os.WriteFile(holdFile, nil, 0o600); err != nil {
		return err
	}
	c, err := connect(ctx, cmd)
	if err != nil {
		return err
	}
	defer c.Close(0)
	say.event("agent", "calls create_ticket for order 123%s", stepOf(meta))
	answered := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, "create_ticket", order, meta)
		answered <- err
	}()
	if err := waitFor(ctx, filepath.Join(dir, HeldFile), answered); err != nil {
		return withStderr(err, c)
	}
	all, err := ReadTickets(dir)
	if err != nil {
		return err
	}
	say.event("tickets", "%s is on disk; its answer has not left yet", all[len(all)-1].ID)
	c.Kill()
	if err := <-answered; err == nil {
		return errors.New("the call was answered although its answer was held")
	}
	say.event("KILL", "SIGKILL ends %s: effect made, outcome not recorded", victim)
	return os.Remove(holdFile)
}

// waitFor waits for a file to appear, or for an answer that came too early.
func waitFor(ctx context.Context, path string, answered <-chan error) error {
	for !exists(path) {
		select {
		case err := <-answered:
			return fmt.Errorf("the call ended before its effect was held: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// connect starts a server and makes the handshake.
func connect(ctx context.Context, cmd *exec.Cmd) (*rawmcp.Client, error) {
	c, err := rawmcp.Start(cmd)
	if err != nil {
		return nil, err
	}
	if _, err := c.Initialize(ctx); err != nil {
		err = withStderr(err, c)
		c.Close(0)
		return nil, err
	}
	return c, nil
}

func withStderr(err error, c *rawmcp.Client) error {
	if s := c.Stderr(); s != "" {
		return fmt.Errorf("%w; it said: %s", err, s)
	}
	return err
}

func count(say *timeline, dir string) (int, error) {
	all, err := ReadTickets(dir)
	if err != nil {
		return 0, err
	}
	say.event("", "tickets in the upstream's own file: %d", len(all))
	return len(all), nil
}
