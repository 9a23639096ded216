package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// flakyRuns is how often a scenario that is listed as flaky may be run until it
// passes.
const flakyRuns = 5

// The MCP project's conformance suite finds no difference between a server and
// the gateway in front of it: what passes against mcp-go's own fixture directly
// passes through the gateway too, scenario by scenario and check by check, in both
// eras of the protocol. testdata/conformance/expected.txt is the list.
func TestConformance(t *testing.T) {
	t.Parallel()
	command := needSuite(t)
	list := conformanceList(t)
	fixture := mustBuild(t, conformanceFixture)
	bin := mustBuild(t, gateway)
	for _, revision := range slices.Sorted(maps.Keys(list)) {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			want := list[revision]
			var direct map[string]checks
			for _, way := range columns {
				s := suite{t: t, command: command, revision: revision, url: conformanceURL(t, way, fixture, bin)}
				got, err := s.run()
				must(t, err)
				s.compare(way, want, got)
				if way == "direct" {
					direct = got
				}
				compareChecks(t, way, want, direct, got)
			}
		})
	}
}

// conformanceURL starts the fixture, and the gateway in front of it or not.
func conformanceURL(t *testing.T, way, fixture, bin string) string {
	t.Helper()
	server := map[string]any{"command": fixture, "args": []string{"stdio"}}
	if way != "stdio" {
		url := servesAt(t, exec.Command(fixture, "http"))
		if way == "direct" {
			return url
		}
		server = map[string]any{"type": "http", "url": url}
	}
	home := t.TempDir()
	// Every tool is guarded. mcp-go has one error code for whatever a tool fails
	// with, which is an unknown outcome unless the policy knows better.
	config, err := json.Marshal(map[string]any{
		"ledger":     bolt{}.url(t, home),
		"mcpServers": map[string]any{"fixture": server},
		"policies": []any{
			map[string]any{"match": "fixture/*", "classify": []any{
				map[string]any{"if": ".rpc_code == -32603", "class": "rejected"},
			}},
		},
	})
	must(t, err)
	path := filepath.Join(home, "config.json")
	must(t, os.WriteFile(path, config, 0o600))
	return servesAt(t, exec.Command(bin, "serve", "--http", "127.0.0.1:0", "--config", path))
}

// compare holds what was found against the list.
func (s suite) compare(way string, want map[string]expectation, got map[string]checks) {
	for name, all := range got {
		e, listed := want[name]
		switch failure := all.failure(); {
		case !listed:
			s.t.Errorf("%s: %s is not in the list (it says %q)", way, name, failure)
		case e[way] == flaky:
			s.retry(way, name, failure)
		case e[way] == passes && failure != "":
			s.t.Errorf("%s: %s fails: %s", way, name, failure)
		case e[way] == fails && failure == "":
			s.t.Errorf("%s: %s passes: the list is stale", way, name)
		}
	}
	for name := range want {
		if _, there := got[name]; !there {
			s.t.Errorf("%s: %s is in the list and did not run", way, name)
		}
	}
}

// retry runs a flaky scenario until it passes.
func (s suite) retry(way, name, failure string) {
	for n := 1; failure != ""; n++ {
		if s.t.Logf("%s: %s, run %d: %s", way, name, n, failure); n == flakyRuns {
			s.t.Errorf("%s: %s is listed as flaky, and always fails", way, name)
			return
		}
		again, err := s.run(name)
		if err != nil {
			s.t.Errorf("%s: %s: %v", way, name, err)
			return
		}
		failure = again[name].failure()
	}
}

// compareChecks sees that no check of a scenario is lost on the way, not even
// where the scenario as a whole fails directly.
func compareChecks(t *testing.T, way string, want map[string]expectation, direct, through map[string]checks) {
	t.Helper()
	for name, all := range direct {
		if want[name]["direct"] == flaky {
			continue
		}
		for _, c := range all {
			if all.succeed(c.ID) && !through[name].succeed(c.ID) {
				t.Errorf("%s: %s: %s succeeds only directly", way, name, c.ID)
			}
		}
	}
}
