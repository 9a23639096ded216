package mcp

import (
	"bufio"
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

// stderrLine is where a line of standard error is cut.
const stderrLine = 64 << 10

// copyStderr puts what the upstream writes to standard error into our log. A
// carriage return ends a line too: progress bars know no other end.
func (w *process) copyStderr(f *os.File) {
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, stderrLine)
	in.Split(cutStderr)
	for in.Scan() {
		text := string(bytes.ToValidUTF8(in.Bytes()[:min(len(in.Bytes()), 2000)], []byte("?")))
		w.stderr.add(text)
		w.peer.log.Info().Str("stderr", text).Msg("upstream says")
	}
}

func cutStderr(data []byte, atEnd bool) (advance int, line []byte, err error) {
	if blank := len(data) - len(bytes.TrimLeft(data, " \t\r\n")); blank > 0 {
		return blank, nil, nil
	}
	if at := bytes.IndexAny(data, "\r\n"); at >= 0 {
		return at, bytes.TrimRight(data[:at], " \t"), nil
	}
	if len(data) >= stderrLine || atEnd && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}
