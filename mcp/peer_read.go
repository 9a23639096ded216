package mcp

import (
	"bytes"
	"regexp"
	"strconv"
)

// line takes one message of the peer. via is the request in whose answer it
// came; nil: that is not known.
func (c *peer) line(p *parser, line []byte, noise *burst, via *pending) {
	e, err := p.parse(line)
	switch {
	case err == nil && e.method != "":
		noise.over()
		c.up.fromPeer(c, e, via)
	case e.id.there() && e.method == "" && answers(&e, p):
		noise.over()
		c.answer(e, err)
	default:
		if noise.begins() {
			c.log.Warn().AnErr("reason", err).Bytes("line", line[:min(len(line), 200)]).Msg("upstream wrote something that is no message")
		}
	}
}

// answers reports whether a line is an answer, or has begun as one.
func answers(e *envelope, p *parser) bool {
	return e.result.there() || e.errObj.there() || p.s.open == `"result"` || p.s.open == `"error"`
}

// lastID finds the id in the end of an answer: some write it last. What comes
// right before the last brace is of the top level.
var lastID = regexp.MustCompile(`"id":\s*("?[0-9]+"?)\s*(?:,\s*"jsonrpc":\s*"2.0"\s*)?\}$`)

// long takes the beginning and the end of a line that is too long.
func (c *peer) long(p *parser, head, tail []byte) {
	e, _ := p.parse(head)
	id := e.rawID()
	if m := lastID.FindSubmatch(tail); m != nil && len(id) == 0 {
		id = m[1]
	}
	c.log.Error().Int("limit", c.up.cfg.lineLimit).Bytes("id", id).Msg("upstream wrote a message that is too long; it is skipped")
	if len(id) > 0 && e.method == "" && answers(&e, p) {
		c.unreadable(id, errLong)
	}
}

func (c *peer) answer(e envelope, err error) {
	if !c.useful.Load() {
		c.useful.Store(true)
		c.up.useful.Store(true)
	}
	if err != nil {
		c.unreadable(e.rawID(), err)
		return
	}
	var to *pending
	if key, err := keyOf(e.rawID()); err == nil {
		to = c.take(key)
	}
	if to == nil {
		c.log.Debug().Bytes("id", e.rawID()).Msg("an answer that nobody waits for")
		return
	}
	to.end(e)
}

// keyOf reads the id of an answer; some servers turn numbers into strings.
func keyOf(id []byte) (uint64, error) { return strconv.ParseUint(string(bytes.Trim(id, `"`)), 10, 64) }

// unreadable takes an answer that cannot be read. Whether what it answers has
// ended is not known: a guarded call stays pending until the process ends.
func (c *peer) unreadable(id []byte, err error) {
	c.log.Warn().AnErr("reason", err).Bytes("id", id).Msg("an answer of the upstream cannot be read")
	key, bad := keyOf(id)
	if bad != nil {
		return
	}
	c.mu.Lock()
	p := c.pending[key]
	if p != nil && p.cut == nil {
		delete(c.pending, key)
	}
	c.mu.Unlock()
	switch {
	case p == nil:
	case p.cut != nil:
		p.cut()
	case p.done != nil:
		p.done(reply{broken: true})
	default:
		p.fail(reply{err: err, sent: 1})
	}
}
