package torture

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// never is when a call returns whose host did not live to see it.
const never = moment(math.MaxInt64 / 2)

// history is what all hosts have seen, each row by itself.
type history struct {
	commits []commit
	reads   []reading
	answers []answer
}

// commit is one call of Commit. One that returned nothing may be applied at any
// time after it was called, or not at all.
type commit struct {
	host     int
	from, to moment
	rows     []row
	how      string
	ref      string // conflicted
	have     uint64
	why      string
	stamp    idem.Instant
}

// reading is what a Load or a List said of its rows.
type reading struct {
	host     int
	from, to moment
	rows     []row
	snapshot bool // a Load
}

type answer struct {
	host       int
	op, result string
}

// readHistory reads the files of all hosts. A line that its host did not live to
// finish is left out: what it tells of had not begun, or its end is not known.
func readHistory(t *testing.T, dir string) *history {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	h := &history{}
	for n, file := range files {
		b, err := os.ReadFile(file)
		must(t, err)
		open := map[int64]int{}
		for line := range bytes.Lines(b) {
			if line[len(line)-1] != '\n' {
				break
			}
			var e event
			must(t, json.Unmarshal(line, &e))
			h.take(n, e, open)
		}
	}
	return h
}

// take adds an event; open finds the commit that a return belongs to.
func (h *history) take(host int, e event, open map[int64]int) {
	switch e.What {
	case called:
		open[e.N] = len(h.commits)
		h.commits = append(h.commits, commit{host: host, from: e.At, to: never, rows: e.Rows, how: doubtful})
	case returned:
		c := &h.commits[open[e.N]]
		c.how, c.ref, c.have, c.why, c.stamp = e.How, e.Ref, e.Have, e.Why, e.Stamp
		if c.how != doubtful {
			c.to = e.At
		}
	case loaded, listed:
		h.reads = append(h.reads, reading{host: host, from: e.At, to: e.Until, rows: e.Rows, snapshot: e.What == loaded})
	case answered:
		h.answers = append(h.answers, answer{host, e.Op, e.Result})
	}
}
