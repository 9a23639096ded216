package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	lineBuffer = 64 << 10
	keepBuffer = 1 << 20 // a larger buffer is given back after use
)

// lineReader reads lines of any size.
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer)}
}

// next returns the next line that is not blank, without its end. It is valid
// until the following call. Bytes after the last line's end come with io.EOF.
func (l *lineReader) next() ([]byte, error) {
	for {
		if cap(l.long) > keepBuffer {
			l.long = nil
		}
		line, err := l.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			l.long = l.long[:0]
			for errors.Is(err, bufio.ErrBufferFull) {
				l.long = append(l.long, line...)
				line, err = l.r.ReadSlice('\n')
			}
			l.long = append(l.long, line...)
			line = l.long
		}
		line = bytes.Trim(line, " \t\r\n")
		if len(line) > 0 || err != nil {
			return line, err
		}
	}
}

// lineWriter writes whole lines, one write call each. It is safe for
// concurrent use.
type lineWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
	err error // sticks: after half a line nothing can be said any more
}

// write writes the parts as one line. n counts the bytes that were taken.
func (l *lineWriter) write(parts ...[]byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	l.buf = l.buf[:0]
	for _, p := range parts {
		l.buf = append(l.buf, p...)
	}
	l.buf = append(l.buf, '\n')
	n, l.err = l.w.Write(l.buf)
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	return n, l.err
}
