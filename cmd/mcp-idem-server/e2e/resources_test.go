package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// piped is a gateway whose standard error nobody reads, driven line by line.
type piped struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPiped(t *testing.T, args ...string) *piped {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "tickets"), 0o700))
	args = append([]string{"--ledger", "bolt://" + filepath.Join(dir, "ledger.db"), "--name", "tickets"}, args...)
	cmd := exec.Command(mustBuild(t, gateway), append(args, "--", self, "__tickets", "-dir", filepath.Join(dir, "tickets"))...)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	unread, w, err := os.Pipe()
	must(t, err)
	cmd.Stderr = w
	must(t, cmd.Start())
	must(t, w.Close())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = unread.Close() })
	p := &piped{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	p.ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	return p
}

// ask sends a request and returns the next line.
func (p *piped) ask(line string) string {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	must(p.t, err)
	answer := make(chan string, 1)
	go func() {
		s, _ := p.out.ReadString('\n')
		answer <- s
	}()
	select {
	case s := <-answer:
		return s
	case <-time.After(20 * time.Second):
		p.t.Fatalf("no answer to %.120s", line)
		return ""
	}
}

func (p *piped) create(i int, meta string) string {
	p.t.Helper()
	return p.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"create_ticket","arguments":{"order_id":"o%d","title":"x"},"_meta":{%s}}}`, i+1, i, meta))
}

// Nobody reads the log, and every ask writes lines of it: answers come all the
// same, and so does the end.
func TestUnreadLogHoldsNothingUp(t *testing.T) {
	t.Parallel()
	p := startPiped(t, "--log-level", "debug")
	for i := range 1500 {
		if s := p.create(i, `"mcp-idem/key":"k1","mcp-idem/task":"t1"`); s == "" {
			t.Fatal("the gateway ended")
		}
	}
	must(t, p.in.Close())
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(15 * time.Second):
		t.Fatal("the gateway does not end")
	}
}

// Memory that is not backed by the ledger's file stays small, and does not grow
// with the rows.
func TestAnonymousMemory(t *testing.T) {
	t.Parallel()
	p := startPiped(t, "--log-level", "error")
	const limit = 40 << 10 // kB
	before := rssAnon(t, p.cmd.Process.Pid)
	for i := range 800 {
		p.create(i, fmt.Sprintf(`"mcp-idem/task":"t1","mcp-idem/step":"s%d"`, i))
	}
	after := rssAnon(t, p.cmd.Process.Pid)
	t.Logf("RssAnon %d kB idle, %d kB after 800 calls", before, after)
	if before > limit || after > limit {
		t.Errorf("RssAnon %d kB idle, %d kB after 800 calls, want under %d", before, after, limit)
	}
}

func rssAnon(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, ok := strings.Cut(string(b), "RssAnon:")
	if !ok {
		t.Fatal("no RssAnon in /proc/PID/status")
	}
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return kb
}
