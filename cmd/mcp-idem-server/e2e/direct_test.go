package e2e

import (
	"os"
	"os/exec"
	"testing"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// direct is a client that speaks to the relay, with no gateway in between.
func direct(t *testing.T, s npm.Server, root, dir string, ctl relay.Control) *rawmcp.Client {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	command, env := s.Command(root, dir)
	cmd := exec.Command(self, append([]string{"__relay", "-control", ctl.Dir, "--"}, command...)...)
	cmd.Env = os.Environ()
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return connect(t, cmd)
}

// The helpers hold what they say, on every server: a dropped request leaves
// nothing, a held answer means that the effect is in the server's own storage,
// and a server that died comes back with it.
func TestHelpersOnEachServer(t *testing.T) {
	t.Parallel()
	for _, s := range npm.All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			root, dir, ctl := needServers(t), t.TempDir(), relay.Control{Dir: t.TempDir()}
			must(t, s.Prepare(root, dir))
			args := s.Arguments(dir)

			c := direct(t, s, root, dir, ctl)
			must(t, ctl.Drop(s.Tool))
			dropped := askInBackground(t, c, s.Tool, args, nil)
			_, err := ctl.Wait(deadline(t), relay.Dropped, s.Tool, 1)
			must(t, err)
			wantEffects(t, s, root, dir, 0)
			must(t, ctl.Drop(""))
			must(t, ctl.Hold(s.Tool))
			held := askInBackground(t, c, s.Tool, args, nil)
			e, err := ctl.Wait(deadline(t), relay.Held, s.Tool, 1)
			must(t, err)
			wantEffects(t, s, root, dir, 1)
			must(t, ctl.Hold(""))
			must(t, ctl.Release())
			if m := <-held; string(m.Raw)+"\n" != e.Answer {
				t.Errorf("the relay changed %q to %q", e.Answer, m.Raw)
			}
			c.Kill()
			<-dropped

			c = direct(t, s, root, dir, ctl)
			wantEffects(t, s, root, dir, 1)
			if m, err := c.Call(deadline(t), s.Tool, args, nil); err != nil || m.Error != nil {
				t.Errorf("after a restart: %v %s", err, m.Raw)
			}
		})
	}
}

// Without the guard a resend after a lost answer applies the edit twice. This
// is the failure that everything here exists to prevent.
func TestUnguardedResendAppliesTwice(t *testing.T) {
	t.Parallel()
	s := npm.Filesystem()
	root, dir, ctl := needServers(t), t.TempDir(), relay.Control{Dir: t.TempDir()}
	must(t, s.Prepare(root, dir))
	must(t, ctl.Hold(s.Tool))
	c := direct(t, s, root, dir, ctl)
	lost := askInBackground(t, c, s.Tool, s.Arguments(dir), nil)
	_, err := ctl.Wait(deadline(t), relay.Held, s.Tool, 1)
	must(t, err)
	c.Kill()
	<-lost
	must(t, ctl.Hold(""))

	c = direct(t, s, root, dir, ctl)
	m, err := c.Call(deadline(t), s.Tool, s.Arguments(dir), nil)
	must(t, err)
	if m.Tool().IsError {
		t.Fatalf("%s", m.Raw)
	}
	wantEffects(t, s, root, dir, 2)
}

func wantEffects(t *testing.T, s npm.Server, root, dir string, want int) {
	t.Helper()
	got, err := s.Effects(root, dir)
	must(t, err)
	if got != want {
		t.Errorf("%d effects in the storage of %s, want %d", got, s.Name, want)
	}
}
