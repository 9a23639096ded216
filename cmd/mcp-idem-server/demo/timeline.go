package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo/rawmcp"
)

// timeline prints who did what, and when after the last title.
type timeline struct {
	out   io.Writer
	start time.Time
}

func newTimeline(out io.Writer) *timeline { return &timeline{out: out, start: time.Now()} }

// plain prints a line. A closed output is not the demo's concern: the counts
// are real whether or not somebody reads them.
func (t *timeline) plain(format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, format+"\n", args...)
}

func (t *timeline) title(s string) {
	t.start = time.Now()
	t.plain("\n%s", s)
}

func (t *timeline) event(who, format string, args ...any) {
	t.plain("  %5.2fs  %-8s %s", time.Since(t.start).Seconds(), who, fmt.Sprintf(format, args...))
}

func stepOf(meta map[string]any) string {
	if meta == nil {
		return ""
	}
	return fmt.Sprintf(" (task %s, step %s)", meta["mcp-idem/task"], meta["mcp-idem/step"])
}

// ticketOf names the ticket of an answer, or shows the answer.
func ticketOf(m rawmcp.Message) string {
	var t Ticket
	if err := json.Unmarshal(m.Tool().Structured, &t); err != nil || t.ID == "" {
		return string(m.Raw)
	}
	return t.ID
}
