package mcp

import (
	"bytes"
	"os"
	"sync"
)

// burst tells the first of several bad lines in a row.
type burst struct{ on bool }

func (b *burst) begins() bool {
	first := !b.on
	b.on = true
	return first
}

func (b *burst) over() { b.on = false }

// tail keeps the last lines of standard error.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == stderrKept {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}

// copyStderr puts what the upstream writes to standard error into our log.
func (c *child) copyStderr(f *os.File) {
	defer f.Close()
	in := newLineReader(f)
	for {
		line, err := in.next()
		if len(line) > 0 {
			text := string(bytes.ToValidUTF8(line[:min(len(line), 2000)], []byte("?")))
			c.stderr.add(text)
			c.log.Info().Str("stderr", text).Msg("upstream says")
		}
		if err != nil {
			return
		}
	}
}
