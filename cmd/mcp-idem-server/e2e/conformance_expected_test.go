package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// columns are how the suite reaches the fixture, in the order of the list:
// with nothing between, and through the gateway, which has the fixture over stdio
// or over HTTP.
var columns = [...]string{"direct", "stdio", "http"}

// What the list may say of a scenario.
const (
	passes = "pass"
	fails  = "fail"
	flaky  = "flaky" // passes, but not always
)

// expectation is what a scenario does, by way.
type expectation map[string]string

// expected is the list: by revision and scenario.
type expected map[string]map[string]expectation

// conformanceList reads the list of results that are expected of the suite, which
// holds that the gateway is no obstacle: what passes directly passes through it.
func conformanceList(t *testing.T) expected {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, "testdata", "conformance", "expected.txt"))
	must(t, err)
	list, err := parseExpected(string(b))
	must(t, err)
	return list
}

func parseExpected(text string) (expected, error) {
	list := expected{}
	for i, line := range strings.Split(text, "\n") {
		entry, reason, _ := strings.Cut(line, "#")
		words := strings.Fields(entry)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2+len(columns) {
			return nil, fmt.Errorf("expected.txt:%d: want revision, scenario and %v", i+1, columns)
		}
		e := expectation{}
		for j, way := range columns {
			e[way] = words[2+j]
		}
		if err := e.sound(strings.TrimSpace(reason)); err != nil {
			return nil, fmt.Errorf("expected.txt:%d: %w", i+1, err)
		}
		revision, scenario := words[0], words[1]
		if list[revision] == nil {
			list[revision] = map[string]expectation{}
		}
		if list[revision][scenario] != nil {
			return nil, fmt.Errorf("expected.txt:%d: %s is there twice", i+1, scenario)
		}
		list[revision][scenario] = e
	}
	return list, nil
}

// sound says what may not stand in the list.
func (e expectation) sound(reason string) error {
	for _, way := range columns {
		switch e[way] {
		case passes:
			continue
		case fails, flaky:
		default:
			return fmt.Errorf("%q is none of pass, fail and flaky", e[way])
		}
		if reason == "" {
			return fmt.Errorf("%s is %s without a reason", way, e[way])
		}
		if direct := e["direct"]; direct == passes || direct == flaky && e[way] == fails {
			return fmt.Errorf("%s directly, and %s over %s", direct, e[way], way)
		}
	}
	return nil
}

func TestConformanceList(t *testing.T) {
	t.Parallel()
	for revision, scenarios := range conformanceList(t) {
		if len(scenarios) < 30 {
			t.Errorf("%s has %d scenarios", revision, len(scenarios))
		}
	}
	for line, want := range map[string]string{
		"2025-11-25 ping pass pass pass":            "",
		"2025-11-25 ping fail pass pass # it does":  "",
		"2025-11-25 ping flaky pass flaky # it is":  "",
		"2025-11-25 ping fail pass pass":            "without a reason",
		"2025-11-25 ping pass fail pass # it does":  "pass directly, and fail over stdio",
		"2025-11-25 ping pass pass flaky # it is":   "pass directly, and flaky over http",
		"2025-11-25 ping flaky fail pass # it does": "flaky directly, and fail over stdio",
		"2025-11-25 ping pass pass works # it does": "none of",
		"2025-11-25 ping pass pass":                 "want revision",
		"2025-11-25 a pass pass pass\n" +
			"2025-11-25 a pass pass pass": "twice",
	} {
		_, err := parseExpected(line)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
