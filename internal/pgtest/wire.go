package pgtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// message is one message of PostgreSQL's protocol: its type, 0 for the first of
// a connection, and all its bytes.
type message struct {
	kind byte
	raw  []byte
}

const (
	codeSSL    = 80877103
	codeGSS    = 80877104
	codeCancel = 80877102

	maxMessage = 1 << 30
)

// readFirst reads a message without a type, as connections begin with.
func readFirst(r io.Reader) (message, error) { return readBody(r, 0, nil) }

// readMessage reads a message with a type.
func readMessage(r io.Reader) (message, error) {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(r, kind); err != nil {
		return message{}, err
	}
	return readBody(r, kind[0], kind)
}

func readBody(r io.Reader, kind byte, head []byte) (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return message{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxMessage {
		return message{}, fmt.Errorf("a message of %d bytes: not PostgreSQL's protocol", n)
	}
	raw := make([]byte, len(head)+int(n))
	copy(raw, head)
	copy(raw[len(head):], size[:])
	_, err := io.ReadFull(r, raw[len(head)+4:])
	return message{kind, raw}, err
}

// code tells the first messages of a connection apart.
func (m message) code() uint32 {
	if len(m.raw) < 8 {
		return 0
	}
	return binary.BigEndian.Uint32(m.raw[4:])
}

// text returns the n-th of the strings that a typed message begins with.
func (m message) text(n int) string {
	b := m.raw[5:]
	for range n {
		_, b, _ = bytes.Cut(b, []byte{0})
	}
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// statements follows what a connection executes.
type statements struct {
	prepared, portals map[string]string
}

func newStatements() statements {
	return statements{prepared: map[string]string{}, portals: map[string]string{}}
}

// executes returns the SQL that a client's message executes.
func (s statements) executes(m message) (sql string, ok bool) {
	switch m.kind {
	case 'P': // Parse: statement, SQL
		s.prepared[m.text(0)] = m.text(1)
	case 'B': // Bind: portal, statement
		s.portals[m.text(0)] = s.prepared[m.text(1)]
	case 'E': // Execute: portal
		return s.portals[m.text(0)], true
	case 'Q': // Query: SQL
		return m.text(0), true
	}
	return "", false
}

// answer is what a server's message says of the outcome: the command's tag or
// the error's code and text.
func (m message) answer() (string, bool) {
	switch m.kind {
	case 'C': // CommandComplete
		return m.text(0), true
	case 'E': // ErrorResponse: fields, each with a letter before it
		f := map[byte]string{}
		for n := 0; ; n++ {
			s := m.text(n)
			if s == "" {
				return strings.TrimSpace("ERROR " + f['C'] + ": " + f['M']), true
			}
			f[s[0]] = s[1:]
		}
	}
	return "", false
}
