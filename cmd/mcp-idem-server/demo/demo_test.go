package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The whole demo as a user runs it.
func TestDemoCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("building and killing the gateway is not for -short")
	}
	home := t.TempDir()
	bin := filepath.Join(home, "mcp-idem-server")
	if out, err := exec.Command("go", "build", "-o", bin, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tmp := filepath.Join(home, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "demo")
	// The user's own settings are not the demo's.
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+home, "XDG_STATE_HOME=", "MCP_IDEM_LEDGER=bolt:///nowhere/ledger.db", "MCP_IDEM_CONFIG=/nowhere.json")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != "effects: guarded=1 unguarded=2" {
		t.Errorf("last line %q", last)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if exists(filepath.Join(home, ".local")) {
		t.Error("the demo wrote to the user's own state directory")
	}
	wantNoProcess(t, tmp)
}

// Without the guard, two tickets: counted, not assumed.
func TestUnguardedRunMakesTwo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out strings.Builder
	n, err := runUnguarded(t.Context(), newTimeline(&out), os.Args[0], filepath.Join(dir, "unguarded"))
	if err != nil || n != 2 {
		t.Errorf("%d effects, want 2 (%v)\n%s", n, err, out.String())
	}
	for _, want := range []string{"T-1 is on disk", "SIGKILL ends the tickets server", "T-2"} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("nothing about %q in:\n%s", want, out.String())
		}
	}
	wantNoProcess(t, dir)
}

// wantNoProcess looks for processes that name the directory.
func wantNoProcess(t *testing.T, dir string) {
	t.Helper()
	var left []string
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left = nil
		cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range cmdlines {
			b, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(b), dir) {
				left = append(left, strings.ReplaceAll(string(b), "\x00", " "))
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}
