package rawmcp_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

func start(t *testing.T, name string, args ...string) *rawmcp.Client {
	t.Helper()
	c, err := rawmcp.Start(exec.Command(name, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(time.Second) })
	return c
}

// cat sends the request back: the client takes it for one of the server's,
// refuses it, and gets its refusal as the answer.
func TestRefusesWhatTheServerAsks(t *testing.T) {
	t.Parallel()
	m, err := start(t, "cat").Request(t.Context(), "ping", struct{}{})
	if err != nil || !strings.Contains(string(m.Error), "not offered") {
		t.Errorf("%v %s", err, m.Raw)
	}
}

func TestDeathEndsEveryRequest(t *testing.T) {
	t.Parallel()
	c := start(t, "sleep", "60")
	done := make(chan error, 1)
	go func() {
		_, err := c.Request(context.Background(), "ping", struct{}{})
		done <- err
	}()
	c.Kill()
	if err := <-done; !errors.Is(err, rawmcp.ErrEnded) {
		t.Errorf("under way: %v", err)
	}
	if _, err := c.Request(context.Background(), "ping", struct{}{}); !errors.Is(err, rawmcp.ErrEnded) {
		t.Errorf("afterwards: %v", err)
	}
	if c.ExitCode() != -1 {
		t.Errorf("exit status %d", c.ExitCode())
	}
}

func TestGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := start(t, "sleep", "60").Request(ctx, "ping", struct{}{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestReadsToolResults(t *testing.T) {
	t.Parallel()
	m := rawmcp.Message{Result: []byte(`{"content":[{"type":"text","text":"x"}],"isError":true,"_meta":{"s":"v","b":true}}`)}
	r := m.Tool()
	if r.Text() != "x" || !r.IsError || r.MetaString("s") != "v" || !r.MetaBool("b") || r.MetaBool("s") {
		t.Errorf("%+v", r)
	}
	if empty := (rawmcp.Message{}).Tool(); empty.Text() != "" || empty.MetaString("s") != "" {
		t.Errorf("%+v", empty)
	}
}
