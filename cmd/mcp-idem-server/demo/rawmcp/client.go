// Package rawmcp is a bare MCP client over a child's standard input and output.
// It writes the bytes it is given and shows the bytes it gets, so that nothing
// between a test (or the demo) and the wire can hide or repair what was sent.
package rawmcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ErrEnded says that the child's standard output ended before the answer came.
var ErrEnded = errors.New("rawmcp: the server ended before it answered")

// Protocol is the version that Initialize asks for.
const Protocol = "2025-06-18"

// Client speaks to one child process. It is safe for concurrent use.
type Client struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *Buffer
	ended  chan struct{} // closed when the child has been waited for

	write sync.Mutex

	mu      sync.Mutex
	nextID  int
	waiting map[string]chan Message // nil once standard output has ended
}

// Start starts cmd as the leader of a process group of its own, so that a
// signal meant for it reaches neither the caller nor, unless asked, its children.
func Start(cmd *exec.Cmd) (*Client, error) {
	c := &Client{
		cmd:     cmd,
		stderr:  &Buffer{},
		ended:   make(chan struct{}),
		waiting: map[string]chan Message{},
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = c.stderr
	// A grandchild that outlives a killed child keeps its standard error open;
	// Wait must not wait for it.
	cmd.WaitDelay = time.Second
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(stdout)
	return c, nil
}

// read hands every answer to who waits for it and reaps the child at the end.
func (c *Client) read(stdout io.Reader) {
	r := bufio.NewReader(stdout)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			c.dispatch(bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil {
			break
		}
	}
	c.mu.Lock()
	for _, ch := range c.waiting {
		close(ch)
	}
	c.waiting = nil
	c.mu.Unlock()
	_ = c.cmd.Wait() // the exit state is read from the process, not from here
	close(c.ended)
}

func (c *Client) dispatch(line []byte) {
	m := Message{Raw: line}
	if json.Unmarshal(line, &m) != nil || len(m.ID) == 0 {
		return
	}
	if m.Method != "" {
		// The server asks us something although we declared no capability.
		// Silence would make it wait.
		_ = c.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not offered"}}`, m.ID))
		return
	}
	c.mu.Lock()
	ch := c.waiting[string(m.ID)]
	delete(c.waiting, string(m.ID))
	c.mu.Unlock()
	if ch != nil {
		ch <- m
	}
}

// Send writes one line as it is.
func (c *Client) Send(line []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	_, err := c.stdin.Write(append(bytes.Clone(line), '\n'))
	return err
}

// Request sends a request and waits for its answer. A JSON-RPC error is an
// answer, not an error. When ctx ends first, the request stays open: the server
// is not told.
func (c *Client) Request(ctx context.Context, method string, params any) (Message, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return Message{}, err
	}
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return Message{}, ErrEnded
	}
	c.nextID++
	id := strconv.Itoa(c.nextID)
	ch := make(chan Message, 1)
	c.waiting[id] = ch
	c.mu.Unlock()

	if err := c.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, raw)); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	select {
	case m, ok := <-ch:
		if !ok {
			return Message{}, ErrEnded
		}
		return m, nil
	case <-ctx.Done():
		return Message{}, ctx.Err()
	}
}

// Initialize makes the handshake.
func (c *Client) Initialize(ctx context.Context) (Message, error) {
	m, err := c.Request(ctx, "initialize", map[string]any{
		"protocolVersion": Protocol,
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "rawmcp", "version": "1"},
	})
	if err != nil {
		return Message{}, err
	}
	if m.Error != nil {
		return m, fmt.Errorf("rawmcp: initialize: %s", m.Error)
	}
	return m, c.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// Call calls a tool. args is marshalled unless it is a json.RawMessage; meta may
// be nil.
func (c *Client) Call(ctx context.Context, tool string, args any, meta map[string]any) (Message, error) {
	params := map[string]any{"name": tool, "arguments": args}
	if meta != nil {
		params["_meta"] = meta
	}
	return c.Request(ctx, "tools/call", params)
}

// Stderr returns what the child has written to standard error so far.
func (c *Client) Stderr() string { return c.stderr.String() }
