package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a host seen from the test: one process after the other.
type process struct {
	t      testing.TB
	orders orders
	dir    string // of the histories
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	said   *lockedBuffer
	ended  chan struct{}
	paused bool
}

func (p *process) start() {
	p.t.Helper()
	p.orders.Life++
	p.orders.History = filepath.Join(p.dir, fmt.Sprintf("%d-%d", p.orders.Host, p.orders.Life))
	text, err := json.Marshal(p.orders)
	must(p.t, err)
	self, err := os.Executable()
	must(p.t, err)
	p.cmd, p.said, p.ended = exec.Command(self), &lockedBuffer{}, make(chan struct{})
	p.cmd.Env = append(os.Environ(), ordersEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	p.stdin, err = p.cmd.StdinPipe()
	must(p.t, err)
	must(p.t, p.cmd.Start())
	cmd, ended := p.cmd, p.ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its status is asked for later
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// wait waits until the host has the ledger open.
func (p *process) wait() {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(p.said.String(), ready); time.Sleep(10 * time.Millisecond) {
		if !p.running() || time.Now().After(end) {
			p.t.Fatalf("host %d does not start: %s", p.orders.Host, p.said)
		}
	}
}

func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.ended
	p.paused = false
}

func (p *process) pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.paused = true
}

func (p *process) resume() {
	p.t.Helper()
	if p.paused {
		p.signal(syscall.SIGCONT)
		p.paused = false
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("host %d cannot be signalled: %v\n%s", p.orders.Host, err, p.said)
	}
}

// rest tells the host to ask for nothing more.
func (p *process) rest() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "rest\n"); err != nil {
		p.t.Fatalf("host %d is gone: %v\n%s", p.orders.Host, err, p.said)
	}
}

// end ends the host in order.
func (p *process) end() {
	p.t.Helper()
	must(p.t, p.stdin.Close())
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.signal(syscall.SIGQUIT) // it says what it is at
		<-p.ended
	}
	if s := p.cmd.ProcessState; !s.Success() {
		p.t.Fatalf("host %d: %v\n%s", p.orders.Host, s, p.said)
	}
}

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	return len(p), nil
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
