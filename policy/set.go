package policy

import (
	"fmt"
	"slices"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// Config is what a Set is made of. Zero durations mean the defaults.
type Config struct {
	Servers []string // upstreams that this process is configured for
	Tools   []Tool   // the first match decides
	// TrustHints are the servers whose readOnlyHint is believed.
	TrustHints []string

	Lease               time.Duration // of a claim; 30 s
	Retention           time.Duration // of a final record; 720 h
	OccurrenceRetention time.Duration // of a delivered occurrence; 48 h
	ResultLimit         int64         // bytes of a result that are kept; 0: no limit

	// Random returns a number in [0,n), for jitter, and must be safe for
	// concurrent use; nil: the runtime's.
	Random func(n int64) int64
}

// Set is the policy of a process. It implements [idem.Policy] and is safe for
// concurrent use.
type Set struct {
	cfg   Config
	tools []Tool
	rules []idem.Rules // of tools

	mu       sync.RWMutex
	readOnly map[string]bool // full names of tools that trusted servers call read only
}

// New checks the configuration and returns a Set. The error names the entry.
func New(c Config) (*Set, error) {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&c.Lease, 30*time.Second)
	def(&c.Retention, 720*time.Hour)
	def(&c.OccurrenceRetention, 48*time.Hour)
	s := &Set{cfg: c, tools: append(slices.Clone(c.Tools), DefaultTool()), readOnly: map[string]bool{}}
	s.rules = make([]idem.Rules, len(s.tools))
	for i := range s.tools {
		if err := CheckMatch(s.tools[i].Match); err != nil {
			return nil, fmt.Errorf("policies[%d].match: %w", i, err)
		}
		s.rules[i] = s.tools[i].rules(&c)
	}
	return s, nil
}

// CheckMatch refuses patterns that could match no tool.
func CheckMatch(pattern string) error { return checkGlob(pattern) }

// Matches reports whether a pattern matches a tool's full name.
func Matches(pattern, tool string) bool { return match(pattern, tool) }

// Reaches reports whether a pattern can match a tool of a server.
func Reaches(pattern, server string) bool { return reaches(pattern, server+"/") }

// Rules implements [idem.Policy].
func (s *Set) Rules(tool string) (idem.Rules, bool) {
	if !slices.Contains(s.cfg.Servers, idem.ServerOf(tool)) {
		return idem.Rules{}, false
	}
	return s.rules[s.find(tool)], true
}

// Tool returns the entry that decides about a tool, by its full name: its own,
// or the defaults. It is read only.
func (s *Set) Tool(tool string) *Tool { return &s.tools[s.find(tool)] }

// Index is the place of the entry that decides about a tool; ok is false where
// the defaults do.
func (s *Set) Index(tool string) (i int, ok bool) {
	i = s.find(tool)
	return i, i < len(s.tools)-1
}

// Entry is the i-th entry, in the order of the configuration. It is read only.
func (s *Set) Entry(i int) *Tool { return &s.tools[i] }

// Unmatched lists the indexes of the entries that are the first match of none of
// the tools.
func (s *Set) Unmatched(tools []string) []int {
	var out []int
	for i := range len(s.tools) - 1 {
		if !slices.ContainsFunc(tools, func(t string) bool { return s.find(t) == i }) {
			out = append(out, i)
		}
	}
	return out
}

func (s *Set) find(tool string) int {
	for i := range s.tools {
		if match(s.tools[i].Match, tool) {
			return i
		}
	}
	return len(s.tools) - 1
}

// Hint tells the set what a server says about one of its tools (annotation
// readOnlyHint). It is kept only where the server is trusted; the latest counts.
func (s *Set) Hint(server, tool string, readOnly bool) {
	if !slices.Contains(s.cfg.TrustHints, server) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := server + "/" + tool; readOnly {
		s.readOnly[name] = true
	} else {
		delete(s.readOnly, name)
	}
}

// Effect is what a tool does: as its entry says, else read where a trusted
// server hints so, else write.
func (s *Set) Effect(tool string) Effect {
	if e := s.Tool(tool).Effect; e != "" {
		return e
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.readOnly[tool] {
		return EffectRead
	}
	return EffectWrite
}
