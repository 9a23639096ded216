package mcp

import (
	"strconv"
	"sync"
)

// asks are the requests of servers to a client that wait for its answer. The
// client sees ids of ours: two servers, or two processes of one, may use the same
// ones.
type asks struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]askOf
}

type askOf struct {
	c  *peer
	id string // as the peer wrote it
}

func (a *asks) add(c *peer, id []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[uint64]askOf{}
	}
	a.last++
	a.open[a.last] = askOf{c, string(id)}
	return strconv.AppendUint(nil, a.last, 10)
}

// take finds whom an answer of the client is for.
func (a *asks) take(id []byte) (askOf, bool) {
	key, err := strconv.ParseUint(string(id), 10, 64)
	if err != nil {
		return askOf{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	ask, ok := a.open[key]
	delete(a.open, key)
	return ask, ok
}

// find returns the id under which the client knows a peer's request.
func (a *asks) find(c *peer, id []byte) ([]byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, ask := range a.open {
		if ask.c == c && ask.id == string(id) {
			return strconv.AppendUint(nil, key, 10), true
		}
	}
	return nil, false
}

// of reports whether a server waits for an answer of the client.
func (a *asks) of(up *Upstream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ask := range a.open {
		if ask.c.up == up {
			return true
		}
	}
	return false
}

// drop takes back what a peer that has ended had asked.
func (a *asks) drop(c *peer, client *session) {
	a.mu.Lock()
	var gone []uint64
	for key, ask := range a.open {
		if ask.c == c {
			gone = append(gone, key)
			delete(a.open, key)
		}
	}
	a.mu.Unlock()
	for _, key := range gone {
		client.say(nil, strconv.AppendUint([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), key, 10),
			[]byte(`,"reason":"the server has ended"}}`))
	}
}

// fromPeer takes a request or a notification of the server.
func (u *Upstream) fromPeer(c *peer, e envelope, via *pending) {
	if k := u.tokens.Load(); k != nil && e.method == "notifications/progress" {
		if client, id, line := k.restore(e); client != nil {
			client.say(id, line)
		}
		return
	}
	client := u.client.Load()
	if via != nil && via.from != nil { // of several that share the conversation, the one that asked
		client = via.from
	}
	if c.own.Load() { // what it says is for us
		client = nil
	}
	if era(c.era.Load()) == toLegacy && (e.id.there() || (e.method != "notifications/progress" && e.method != "notifications/message")) {
		client = nil // its protocol has no place for it
	}
	var about []byte
	if via != nil {
		about = via.id
	}
	if e.id.there() {
		if client == nil {
			u.answerOwn(c, e)
			return
		}
		id := client.asks.add(c, e.rawID())
		client.say(about, e.line[:e.id.from], id, e.line[e.id.to:])
		return
	}
	switch e.method {
	case "notifications/tools/list_changed":
		u.tools.drop()
	case "notifications/cancelled":
		params := e.params.of(e.line)
		if at, err := member(params, "requestId"); err == nil && at.there() {
			if client == nil {
				return
			}
			if id, ok := client.asks.find(c, at.of(params)); ok {
				from := e.params.from
				client.say(about, e.line[:from+at.from], id, e.line[from+at.to:])
			}
			return
		}
	}
	line, of, ok := c.subscribed(e)
	if !ok {
		return
	}
	if of != nil {
		about, client = of.id, of.from
	}
	if client != nil {
		client.say(about, line)
		return
	}
	for _, p := range c.listeners(e) {
		if line, err := marked(e, p.id); err == nil {
			p.from.say(p.id, line)
		}
	}
}

// answerOwn answers a server's request where no client is there to do it.
func (u *Upstream) answerOwn(c *peer, e envelope) {
	tail := `,"error":{"code":-32601,"message":"no client is connected"}}`
	if e.method == "ping" {
		tail = `,"result":{}}`
	}
	_ = c.wire.notify([]byte(`{"jsonrpc":"2.0","id":`), e.rawID(), []byte(tail))
}
