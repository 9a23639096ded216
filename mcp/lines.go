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
	keepBuffer = 1 << 20   // a larger buffer is given back after use
	lineLimit  = 256 << 20 // of a message
	lineTail   = 256       // of a line that is too long
)

// errLong: a line is longer than the limit.
var errLong = errors.New("the message is too long")

// lineReader reads lines up to a limit.
type lineReader struct {
	r     *bufio.Reader
	limit int
	blank bool // blank lines mean something
	long  []byte
	tail  []byte // the end of the last line that was too long
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer), limit: limit}
}

// next returns the next line that is not blank, without its end. It is valid
// until the following call. Bytes after the last line's end come with io.EOF. Of
// a line that is too long its beginning comes, with errLong; the reader is
// behind it then.
func (l *lineReader) next() ([]byte, error) {
	for {
		if cap(l.long) > keepBuffer {
			l.long = nil
		}
		line, err := l.r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			l.long = l.long[:0]
			for errors.Is(err, bufio.ErrBufferFull) && len(l.long) <= l.limit {
				l.long = append(l.long, line...)
				line, err = l.r.ReadSlice('\n')
			}
			if l.long = append(l.long, line...); len(l.long) > l.limit {
				return l.skip(err)
			}
			line = l.long
		}
		line = bytes.Trim(line, " \t\r\n")
		if len(line) > 0 || err != nil || l.blank {
			return line, err
		}
	}
}

// skip reads to the end of a line and keeps a little of it.
func (l *lineReader) skip(err error) ([]byte, error) {
	l.tail = append(l.tail[:0], l.long[max(0, len(l.long)-lineTail):]...)
	l.long = l.long[:min(len(l.long), lineBuffer)]
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = l.r.ReadSlice('\n')
		l.tail = append(l.tail, part...)
		l.tail = l.tail[:copy(l.tail, l.tail[max(0, len(l.tail)-lineTail):])]
	}
	l.tail = bytes.Trim(l.tail, " \t\r\n")
	return l.long, errLong // what ended the input comes with the next call
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
