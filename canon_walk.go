package idem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is the most arrays and objects that may be nested.
const maxDepth = 200

// canon renders values canonically. One walk over the tokens writes each member
// behind its predecessor and sorts an object's members when it closes.
type canon struct {
	in  bytes.Buffer // the decoder reads a bytes.Buffer in place
	dec *jsontext.Decoder

	out     []byte   // the canonical form so far
	tmp     []byte   // short-lived: a number's digits, a string, members being sorted
	names   []byte   // decoded names of the members of all open objects
	members []member // of all open objects
	path    []span   // in names: what leads to the member being read
	sel     Selection
}

type span struct{ from, to int }

type member struct {
	name span // in names
	text span // in out, with the comma behind it
}

var canons = sync.Pool{New: func() any { return &canon{dec: jsontext.NewDecoder(new(bytes.Buffer))} }}

// keptBytes is the most scratch memory that a pooled canon holds on to.
const keptBytes = 256 << 10

func newCanon() *canon { return canons.Get().(*canon) }

func (c *canon) free() {
	if cap(c.out)+cap(c.tmp)+cap(c.names) > keptBytes || cap(c.members) > keptBytes/32 {
		return
	}
	c.reset(nil) // holds no caller's bytes
	c.sel = Selection{}
	c.out = c.out[:0]
	canons.Put(c)
}

func (c *canon) reset(in []byte) {
	c.in = *bytes.NewBuffer(in)
	c.dec.Reset(&c.in)
	c.names, c.members, c.path = c.names[:0], c.members[:0], c.path[:0]
}

// document renders the one value that the input has to be.
func (c *canon) document(sel Selection) error {
	c.sel = sel
	all := slices.ContainsFunc(sel.Only, func(p Path) bool { return len(p) == 0 })
	if err := c.value(filter{only: len(sel.Only) > 0 && !all, except: len(sel.Except) > 0}); err != nil {
		return err
	}
	switch _, err := c.dec.ReadToken(); {
	case err == nil:
		return invalid("", "something follows the value")
	case !errors.Is(err, io.EOF):
		return c.bad(err)
	}
	return nil
}

func (c *canon) value(f filter) error {
	switch c.dec.PeekKind() {
	case '{':
		return c.object(f)
	case '[':
		return c.array()
	}
	raw, err := c.dec.ReadValue()
	if err != nil {
		return c.bad(err)
	}
	switch raw.Kind() {
	case '"':
		return c.str(raw)
	case '0':
		return c.number(raw)
	}
	c.out = append(c.out, raw...)
	return nil
}

func (c *canon) open() error {
	if _, err := c.dec.ReadToken(); err != nil {
		return c.bad(err)
	}
	if c.dec.StackDepth() > maxDepth {
		return invalid(c.dec.StackPointer(), "more than %d nested arrays and objects", maxDepth)
	}
	return nil
}

func (c *canon) array() error {
	if err := c.open(); err != nil {
		return err
	}
	c.out = append(c.out, '[')
	first := true
	for c.dec.PeekKind() != ']' {
		if !first {
			c.out = append(c.out, ',')
		}
		first = false
		if err := c.value(filter{}); err != nil {
			return err
		}
	}
	c.out = append(c.out, ']')
	_, err := c.dec.ReadToken()
	return c.bad(err)
}

func (c *canon) object(f filter) error {
	if err := c.open(); err != nil {
		return err
	}
	begin, names, members := len(c.out)+1, len(c.names), len(c.members)
	c.out = append(c.out, '{')
	sorted := true
	for c.dec.PeekKind() != '}' {
		m, keep, err := c.member(f)
		if err != nil {
			return err
		}
		if !keep {
			c.out, c.names = c.out[:m.text.from], c.names[:m.name.from]
			continue
		}
		if n := len(c.members); n > members && sorted {
			sorted = compareUTF16(c.name(c.members[n-1].name), c.name(m.name)) < 0
		}
		c.members = append(c.members, m)
	}
	if !sorted {
		c.sort(begin, c.members[members:])
	}
	if len(c.members) == members {
		c.out = append(c.out, '}')
	} else {
		c.out[len(c.out)-1] = '}' // in place of the last comma
	}
	c.names, c.members = c.names[:names], c.members[:members]
	_, err := c.dec.ReadToken()
	return c.bad(err)
}

// member renders one member and says whether the selection keeps it.
func (c *canon) member(f filter) (m member, keep bool, err error) {
	raw, err := c.dec.ReadValue()
	if err != nil {
		return m, false, c.bad(err)
	}
	m.name.from, m.text.from = len(c.names), len(c.out)
	if c.names, err = unquote(c.names, raw); err != nil {
		return m, false, c.bad(err)
	}
	m.name.to = len(c.names)
	if err := c.str(raw); err != nil {
		return m, false, err
	}
	c.out = append(c.out, ':')

	keep = true
	if f.on() {
		depth := len(c.path)
		c.path = append(c.path, m.name)
		f, keep = c.enter(f)
		err = c.value(f)
		c.path = c.path[:depth]
	} else {
		err = c.value(f)
	}
	c.out = append(c.out, ',')
	m.text.to = len(c.out)
	return m, keep, err
}

// sort brings the members of an object, which begin at begin, into order.
func (c *canon) sort(begin int, ms []member) {
	slices.SortFunc(ms, func(a, b member) int { return compareUTF16(c.name(a.name), c.name(b.name)) })
	c.tmp = append(c.tmp[:0], c.out[begin:]...)
	c.out = c.out[:begin]
	for _, m := range ms {
		c.out = append(c.out, c.tmp[m.text.from-begin:m.text.to-begin]...)
	}
}

func (c *canon) name(s span) []byte { return c.names[s.from:s.to] }

func (c *canon) str(raw jsontext.Value) error {
	if bytes.IndexByte(raw, '\\') < 0 { // JSON allows nothing unescaped that needs an escape
		c.out = append(c.out, raw...)
		return nil
	}
	var err error
	if c.tmp, err = jsontext.AppendUnquote(c.tmp[:0], raw); err != nil {
		return c.bad(err)
	}
	c.out, err = jsontext.AppendQuote(c.out, c.tmp)
	return c.bad(err)
}

func unquote(dst []byte, raw jsontext.Value) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return append(dst, raw[1:len(raw)-1]...), nil
	}
	return jsontext.AppendUnquote(dst, raw)
}

// compareUTF16 orders UTF-8 as its UTF-16 code units would be: as bytes, but
// for characters beyond the basic plane, whose surrogates come before U+E000.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			if xs, ys := x >= 0xF0, y >= 0xF0; xs != ys && min(x, y) >= 0xEE {
				x, y = y, x
			}
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}

// bad translates the decoder's error; nil stays nil.
func (c *canon) bad(err error) error {
	if err == nil {
		return nil
	}
	at, what := c.dec.StackPointer(), err
	if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, what = syn.JSONPointer, syn.Err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid(at, "the JSON ends too early")
	}
	return invalid(at, "%v", what)
}

// maxPlace is the most bytes of a place that an error text shows: names are the
// asker's own and may be of any length.
const maxPlace = 200

func invalid(at jsontext.Pointer, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if at != "" {
		p := string(at)
		if len(p) > maxPlace {
			p = p[:maxPlace] + "…"
		}
		text = fmt.Sprintf("at %+q: %s", p, text)
	}
	return &Error{Code: CodeInvalidArguments, Text: text}
}
