package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
)

// suite runs the MCP project's conformance suite, one revision of the protocol,
// against the server at a URL.
type suite struct {
	t             *testing.T
	command       []string
	revision, url string
}

// check is one thing that a scenario looks at.
type check struct {
	ID           string `json:"id"`
	Status       string `json:"status"` // SUCCESS, FAILURE, WARNING, INFO, SKIPPED
	ErrorMessage string `json:"errorMessage"`
}

type checks []check

// failure is what the scenario fails for; "" if it passes.
func (all checks) failure() string {
	if len(all) == 0 {
		return "nothing was checked"
	}
	for _, c := range all {
		if c.Status == "FAILURE" {
			return c.ID + ": " + c.ErrorMessage
		}
	}
	return ""
}

// succeed reports whether every check of an id is a success, and there is one.
func (all checks) succeed(id string) bool {
	found := false
	for _, c := range all {
		if c.ID == id {
			if found = true; c.Status != "SUCCESS" {
				return false
			}
		}
	}
	return found
}

// needSuite returns the suite's command line, or skips; in CI it fails.
func needSuite(t *testing.T) []string {
	t.Helper()
	command, err := npm.Suite(needServers(t))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return command
}

// suiteLimit bounds a run, which takes four seconds where nothing else runs.
const suiteLimit = 2 * time.Minute

// resultDir is how the suite names what it writes of a scenario.
var resultDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)

// run runs every scenario of the revision, or one, and returns what was checked.
func (s suite) run(scenario ...string) (map[string]checks, error) {
	dir := s.t.TempDir()
	args := append(slices.Clone(s.command[1:]), "server", "--url", s.url, "--spec-version", s.revision, "--output-dir", dir, "--suite", "all")
	if len(scenario) > 0 {
		args = append(args, "--scenario", scenario[0])
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), suiteLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.command[0], args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: a scenario fails
		return nil, fmt.Errorf("the suite ended with %w:\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil || len(found) == 0 {
		return nil, errors.Join(err, fmt.Errorf("the suite has no results:\n%s", out))
	}
	results := map[string]checks{}
	for _, path := range found {
		m := resultDir.FindStringSubmatch(filepath.Base(filepath.Dir(path)))
		if m == nil {
			return nil, fmt.Errorf("the suite writes results to %s", path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var all checks
		if err := json.Unmarshal(b, &all); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		results[m[1]] = all
	}
	return results, nil
}

// conformanceFixture builds mcp-go's own server for the suite, with our main.
var conformanceFixture = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/mark3labs/mcp-go").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	theirs, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "examples", "conformance", "main.go"))
	if err != nil {
		return "", err
	}
	const start = "\nfunc main() {"
	if bytes.Count(theirs, []byte(start)) != 1 {
		return "", errors.New("mcp-go's fixture has no main to replace")
	}
	ours, err := os.ReadFile(filepath.Join(repository, "testdata", "conformance", "more.go"))
	if err != nil {
		return "", err
	}
	theirFile, ourFile := filepath.Join(builds, "fixture.go"), filepath.Join(builds, "more.go")
	err = errors.Join(
		os.WriteFile(theirFile, bytes.Replace(theirs, []byte(start), []byte("\nfunc theirMain() {"), 1), 0o600),
		os.WriteFile(ourFile, ours, 0o600),
	)
	if err != nil {
		return "", err
	}
	path := filepath.Join(builds, "conformance")
	if out, err := exec.Command("go", "build", "-o", path, theirFile, ourFile).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// servesAt starts a process, which ends with the test, and returns the URL that
// it says it serves at.
func servesAt(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var said rawmcp.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // a fixture is interrupted
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			t.Errorf("%s did not end", cmd)
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd, said.String())
		}
	})
	for end := time.After(30 * time.Second); ; {
		if url := endpoint.FindString(said.String()); url != "" {
			return url
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended", cmd)
		case <-end:
			t.Fatalf("%s does not serve", cmd)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var endpoint = regexp.MustCompile(`http://\S+/mcp\b`)
