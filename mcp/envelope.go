package mcp

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// span is where a raw value stands in a line or in a larger value. The zero
// span says that there is none.
type span struct{ from, to int }

func (s span) there() bool           { return s.to > s.from }
func (s span) of(line []byte) []byte { return line[s.from:s.to] }

// envelope is one JSON-RPC message, read at its top level only. Everything in
// it is a place in the line, which is never changed.
type envelope struct {
	line   []byte
	id     span
	method string // unescaped; empty: an answer
	params span
	result span
	errObj span
	head   http.Header // of the HTTP request that it came in; nil: none
}

func (e *envelope) rawID() []byte { return e.id.of(e.line) }

var (
	errBatch     = errors.New("batches are not supported")
	errNotObject = errors.New("not a JSON-RPC message")
	errTwice     = errors.New("a member appears twice")
	errBadID     = errors.New("id is neither a string nor a number")
)

// tooDeep reports that the line is deeper than the tokenizer goes. Unlike
// other broken lines it may well be valid JSON.
func tooDeep(err error) bool { return err != nil && strings.Contains(err.Error(), "max depth") }

// parser reads envelopes; it belongs to one goroutine.
type parser struct {
	s scanner
}

// parse reads a line's envelope. On an error the envelope holds what was read
// before it.
func (p *parser) parse(line []byte) (envelope, error) {
	e := envelope{line: line}
	if first := bytes.TrimLeft(line, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		return e, errBatch
	}
	var fault error
	once := func(s *span, v span) {
		if s.there() {
			fault = errTwice
		}
		*s = v
	}
	var method span
	err := p.s.members(line, func(name []byte, v span) {
		switch string(name) {
		case `"id"`:
			once(&e.id, v)
		case `"method"`:
			once(&method, v)
		case `"params"`:
			once(&e.params, v)
		case `"result"`:
			once(&e.result, v)
		case `"error"`:
			once(&e.errObj, v)
		}
	})
	if method.there() {
		m, uerr := unquote(method.of(line))
		if uerr != nil && err == nil {
			err = errNotObject
		}
		e.method = m
	}
	if err == nil {
		err = fault
	}
	if e.id.there() {
		switch c := line[e.id.from]; {
		case c == '"', c == '-', c >= '0' && c <= '9':
		case c == 'n': // as good as none, and what servers answer to broken lines
			e.id = span{}
		case err == nil:
			err = errBadID
		}
	}
	return e, err
}

// scanner walks the members of one object. It belongs to one goroutine.
type scanner struct {
	in  bytes.Buffer
	dec jsontext.Decoder
	// open is the member whose value could not be read to its end.
	open string
}

var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// members calls f with each member of an object, in order: its name as it
// stands between the quotes, quotes included and escapes undone, and where its
// value is. It is lenient in what loses nothing: names twice and bad UTF-8 are
// for others to judge.
func (s *scanner) members(object []byte, f func(name []byte, value span)) error {
	s.open = ""
	s.in = *bytes.NewBuffer(object)
	s.dec.Reset(&s.in, lenient...)
	d := &s.dec
	if d.PeekKind() != '{' {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		return errNotObject
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return err
		}
		if bytes.IndexByte(name, '\\') >= 0 {
			if plain, err := unquote(name); err == nil {
				name = jsontext.Value(`"` + plain + `"`)
			}
		}
		key := []byte(name)
		if d.PeekKind() == 0 {
			s.open = string(key)
		}
		v, err := d.ReadValue()
		if err != nil {
			s.open = string(key)
			return err
		}
		to := int(d.InputOffset())
		f(key, span{to - len(v), to})
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if len(bytes.TrimSpace(object[d.InputOffset():])) > 0 {
		return errNotObject
	}
	return nil
}

// member finds the last member of that name.
func member(object []byte, name string) (span, error) {
	var s scanner
	var found span
	err := s.members(object, func(n []byte, v span) {
		if string(n) == `"`+name+`"` {
			found = v
		}
	})
	return found, err
}

// unquote undoes a JSON string.
func unquote(raw []byte) (string, error) {
	b, err := jsontext.AppendUnquote(nil, raw)
	return string(b), err
}

// quote makes a JSON string.
func quote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s) // bad UTF-8 becomes U+FFFD
	return b
}

// elements are the raw elements of an array; none if it is no array.
func elements(array []byte) [][]byte {
	d := jsontext.NewDecoder(bytes.NewBuffer(array), lenient...)
	if d.PeekKind() != '[' {
		return nil
	}
	_, _ = d.ReadToken()
	var out [][]byte
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			break
		}
		out = append(out, v)
	}
	return out
}
