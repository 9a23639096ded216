package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// served is a gateway that serves over HTTP, and one session with it.
type served struct {
	t       *testing.T
	cmd     *exec.Cmd
	url     string
	session string
	ended   chan error
}

var listening = regexp.MustCompile(`listening on (http://\S+)`)

func (st *stage) serve() *served {
	st.t.Helper()
	cmd := st.command()
	cmd.Args = append([]string{cmd.Args[0], "serve", "--http", "127.0.0.1:0"}, cmd.Args[1:]...)
	stderr, err := cmd.StderrPipe()
	must(st.t, err)
	must(st.t, cmd.Start())
	s := &served{t: st.t, cmd: cmd, ended: make(chan error, 1)}
	url := make(chan string, 1)
	go func() {
		in := bufio.NewScanner(stderr)
		for in.Scan() {
			if m := listening.FindStringSubmatch(in.Text()); m != nil {
				url <- m[1]
			}
		}
		s.ended <- cmd.Wait()
	}()
	st.t.Cleanup(func() { _ = cmd.Process.Kill() })
	select {
	case s.url = <-url:
	case err := <-s.ended:
		st.t.Fatalf("it does not serve: %v", err)
	}
	s.post(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// post sends one message and returns what comes back, or an error's text.
func (s *served) post(body string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", s.session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		s.session = id
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (s *served) create() string {
	args, err := json.Marshal(ticketArgs)
	must(s.t, err)
	meta, err := json.Marshal(ticketStep)
	must(s.t, err)
	return s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":%s}}`, ticketTool, args, meta))
}

// A gateway that is told to end answers and records what is under way.
func TestServeEndsInOrder(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), nil)
	s := st.serve()
	must(t, st.ctl.Hold(ticketTool))
	answer := make(chan string, 1)
	go func() { answer <- s.create() }()
	st.wait(relay.Held, ticketTool, 1)
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	time.Sleep(200 * time.Millisecond)
	must(t, st.ctl.Hold(""))
	must(t, st.ctl.Release())
	if got := <-answer; !strings.Contains(got, `"mcp-idem/state":"COMMITTED"`) {
		t.Errorf("%s", got)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	wantTicket(t, st, settle(t, st.start(), ticketTool, ticketArgs, ticketStep))
}

// A gateway that is killed between effect and record is replaced: the next one
// finds out what happened, for clients over HTTP and over stdio.
func TestServeIsKilled(t *testing.T) {
	t.Parallel()
	st := ticketStage(t, mustBuild(t, gateway), nil)
	s := st.serve()
	must(t, st.ctl.Hold(ticketTool))
	answer := make(chan string, 1)
	go func() { answer <- s.create() }()
	st.wait(relay.Held, ticketTool, 1)
	must(t, s.cmd.Process.Kill())
	<-answer
	if err := <-s.ended; err == nil {
		t.Error("it was not killed")
	}
	must(t, st.ctl.Hold(""))
	next := st.serve()
	var got string
	for end := time.Now().Add(20 * time.Second); !strings.Contains(got, `"mcp-idem/state":"COMMITTED"`); time.Sleep(100 * time.Millisecond) {
		if got = next.create(); time.Now().After(end) {
			t.Fatalf("it is not settled: %s", got)
		}
	}
	wantTicket(t, st, settle(t, st.start(), ticketTool, ticketArgs, ticketStep))
}
