package rawmcp

import (
	"bytes"
	"sync"
	"syscall"
	"time"
)

// Pid returns the child's process id, which is its group's id too.
func (c *Client) Pid() int { return c.cmd.Process.Pid }

// Ended is closed when the child has ended and was reaped.
func (c *Client) Ended() <-chan struct{} { return c.ended }

// ExitCode returns the exit status once Ended is closed: -1 after a signal.
func (c *Client) ExitCode() int { return c.cmd.ProcessState.ExitCode() }

// Signal sends a signal to the child alone. A child that has ended is left be.
func (c *Client) Signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) }

// Kill ends the child alone with SIGKILL, as a crash would, and waits for it.
func (c *Client) Kill() {
	c.Signal(syscall.SIGKILL)
	<-c.ended
}

// Close ends standard input and waits up to patience; what then still runs of
// the child's group is killed.
func (c *Client) Close(patience time.Duration) {
	_ = c.stdin.Close() // it may be closed or broken already
	select {
	case <-c.ended:
	case <-time.After(patience):
	}
	_ = syscall.Kill(-c.Pid(), syscall.SIGCONT)
	_ = syscall.Kill(-c.Pid(), syscall.SIGKILL)
	<-c.ended
}

// CloseInput ends the child's standard input.
func (c *Client) CloseInput() error { return c.stdin.Close() }

// Buffer collects output and is safe for concurrent use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
