package mcp

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

// webSession is a client over HTTP: with a session, or for one request.
type webSession struct {
	id   string // empty: for one request
	who  principal
	f    *Front
	s    *session
	sink *webSink
	over *sharedLinks // of one request: the conversations that it is in; nil: it has its own
	used time.Time

	speak sync.Mutex // held while a message is taken
}

// beginLocked makes a session.
func (f *Front) beginLocked(who principal) *webSession {
	s := &webSession{id: newID() + newID(), who: who, f: f, sink: newWebSink(), used: time.Now()}
	s.s = newSession(f.g, f.g.linkAll(), s.sink)
	s.s.who = caller{tenant: who.tenant, task: "http-" + newID(), http: true}
	f.sessions[s.id] = s
	return s
}

// oneOffLocked is a conversation of one message, over what the principal's other
// ones share.
func (f *Front) oneOffLocked(who principal) *webSession {
	l := f.shared[who]
	if l == nil {
		l = &sharedLinks{ups: f.g.linkAll()}
		for _, up := range l.ups {
			up.tokens.Store(&l.tokens)
			up.withoutClient()
		}
		f.shared[who] = l
	}
	s := &webSession{who: who, f: f, sink: newWebSink(), over: l}
	s.s = sessionOn(f.g, l.ups, s.sink)
	s.s.begun = true // the servers are spoken to in our own name
	s.s.who = caller{tenant: who.tenant, http: true, conns: func(task string) *idem.Conn { return l.conn(f.g, task) }}
	l.open.Add(1)
	return s
}

// take takes one message and answers it.
func (s *webSession) take(w http.ResponseWriter, r *http.Request, body []byte, e envelope) {
	if !e.id.there() || e.method == "" { // a notification, or an answer to a server
		s.say(body, r.Header)
		if s.over != nil {
			s.s.end()
			s.over.open.Done()
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if s.id != "" && e.method == "initialize" {
		w.Header().Set(headerSession, s.id)
	}
	st := newWebStream(w, r)
	st.modern = modernHello(e) != nil
	if !s.sink.open(e, st) {
		writeError(w, http.StatusBadRequest, e.rawID(), codeInvalidRequest, "a request of this id is under way")
		return
	}
	if s.over == nil {
		s.say(body, r.Header)
		st.wait(nil)
		s.touch()
		return
	}
	body, drop := s.over.tokens.replace(s.s, e)
	s.say(body, r.Header)
	var quit <-chan struct{}
	if e.method == "subscriptions/listen" { // it would last for ever
		quit = s.f.quit
	}
	left := st.wait(quit)
	go func() {
		defer s.over.open.Done()
		s.seeOff(left, bytes.Clone(e.rawID()))
		drop()
	}()
}

// againPause is how soon a server is told once more that nobody waits, for a
// request that was on its way to it the first time.
const againPause = time.Second

// seeOff ends a conversation of one request. Where the client has left, its
// guarded call goes on without it; anything else is taken back, for in the
// stateless protocol a client cancels by leaving.
func (s *webSession) seeOff(left bool, id []byte) {
	defer s.s.end()
	s.s.close()
	if left {
		s.s.forsaken(id)
		s.s.end()
	}
	again := time.NewTicker(againPause)
	defer again.Stop()
	for {
		select {
		case <-s.s.idle:
			return
		case <-again.C:
		}
		if left {
			s.s.forsaken(id)
		}
	}
}

func (s *webSession) say(body []byte, head http.Header) {
	s.speak.Lock()
	defer s.speak.Unlock()
	s.s.line(body, head)
}

func (s *webSession) touch() {
	s.f.mu.Lock()
	s.used = time.Now()
	s.f.mu.Unlock()
}

// busy reports whether requests are under way.
func (s *webSession) busy() bool {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return s.s.owed > 0
}

// see sees a session out: what is under way goes on until it ends, or quit is
// closed, and then for as long as the gateway drains.
func (s *webSession) see(quit <-chan struct{}) {
	s.s.close()
	select {
	case <-s.s.idle:
	case <-quit:
	}
	s.s.finish(nil)
	s.sink.close()
}

// backlogLimit bounds what servers have said on their own and nobody has fetched.
const backlogLimit = 256

// webSink brings what goes to a client over HTTP to the right stream.
type webSink struct {
	mu      sync.Mutex
	streams map[string]*webStream // of requests, by the client's id
	tokens  map[string]string     // ids by progress token, both raw
	order   []*webStream          // of requests, the latest last
	general *webStream
	backlog [][]byte
	closed  bool
}

func newWebSink() *webSink {
	return &webSink{streams: map[string]*webStream{}, tokens: map[string]string{}}
}

// open takes the stream of a request.
func (k *webSink) open(e envelope, st *webStream) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := string(e.rawID())
	if k.streams[id] != nil || k.closed {
		return false
	}
	k.streams[id] = st
	k.order = append(k.order, st)
	if token := find(find(e.params.of(e.line), "_meta"), "progressToken"); token != nil {
		st.token = string(token)
		k.tokens[st.token] = id
	}
	return true
}

func (k *webSink) take(id []byte) *webStream {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.streams[string(id)]
	if st == nil {
		return nil
	}
	delete(k.streams, string(id))
	delete(k.tokens, st.token)
	for i, o := range k.order {
		if o == st {
			k.order = append(k.order[:i:i], k.order[i+1:]...)
			break
		}
	}
	return st
}

// answer implements sink. Its error says that the client did not get it.
func (k *webSink) answer(id []byte, parts ...[]byte) error {
	st := k.take(id)
	if st == nil {
		return errClientGone
	}
	return st.answer(bytes.Join(parts, nil))
}

// abandon implements sink.
func (k *webSink) abandon(id []byte) {
	if st := k.take(id); st != nil {
		st.end()
	}
}

// say implements sink. What belongs to a request goes on its stream; what a
// server asks or tells on its own on the general one, else on that of the latest
// request, and what nobody listens to is kept for who does.
func (k *webSink) say(about []byte, parts ...[]byte) error {
	msg := bytes.Join(parts, nil)
	if about == nil {
		about = k.byToken(msg)
	}
	k.mu.Lock()
	st := k.streams[string(about)]
	if st == nil {
		st = k.general
	}
	if st == nil && len(k.order) > 0 {
		st = k.order[len(k.order)-1]
	}
	if st == nil {
		if len(k.backlog) == backlogLimit {
			k.backlog = k.backlog[1:]
		}
		k.backlog = append(k.backlog, msg)
		k.mu.Unlock()
		return nil
	}
	k.mu.Unlock()
	return st.say(msg)
}

// byToken finds the request that a notification of progress belongs to.
func (k *webSink) byToken(msg []byte) []byte {
	if !bytes.Contains(msg, []byte("notifications/progress")) {
		return nil
	}
	token := find(find(msg, "params"), "progressToken")
	k.mu.Lock()
	defer k.mu.Unlock()
	if id, ok := k.tokens[string(token)]; ok && token != nil {
		return []byte(id)
	}
	return nil
}

// hear makes a stream the general one, in the place of an earlier one.
func (k *webSink) hear(st *webStream) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	if k.general != nil {
		k.general.end()
	}
	k.general = st
	for _, msg := range k.backlog {
		_ = st.say(msg)
	}
	k.backlog = nil
	return true
}

func (k *webSink) deaf(st *webStream) {
	st.end()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.general == st {
		k.general = nil
	}
}

func (k *webSink) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, st := range k.order {
		st.end()
	}
	if k.general != nil {
		k.general.end()
	}
}

// forsaken takes back what a client has asked for and waits for no more, but for a
// guarded call, whose outcome is wanted still: unless its policy has cancellations
// passed on.
func (s *session) forsaken(id []byte) {
	s.mu.Lock()
	c := s.calls[string(id)]
	s.mu.Unlock()
	if c != nil && !c.rules.ForwardCancel {
		return
	}
	note := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), id...)
	var p parser
	if e, err := p.parse(append(note, `,"reason":"the client has left"}}`...)); err == nil {
		s.cancelled(e)
	}
}
