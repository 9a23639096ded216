package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// httpWire is the wire to a server over streamable HTTP: one POST per message,
// answered by JSON or by a stream of events, and one stream for what the server
// says on its own. Nothing is ever sent twice.
type httpWire struct {
	peer   *peer
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // requests, and the stream
	idle   chan job       // workers without one wait here

	mu      sync.Mutex
	url     string
	session string // Mcp-Session-Id; empty: there is none
	version string // of the protocol, as initialize agreed on it
	ended   bool
	lastErr string
	closing sync.Once
	hurry   chan struct{} // closed when nothing is waited for any more
	hurries sync.Once
}

const (
	headerSession  = "Mcp-Session-Id"
	headerVersion  = "Mcp-Protocol-Version"
	headerEvent    = "Last-Event-Id"
	notifyLimit    = 10 * time.Second
	deleteLimit    = time.Second
	dialLimit      = 10 * time.Second
	resumeTries    = 5
	errorBodyLimit = 64 << 10
)

var (
	errNoSession  = errors.New("the server does not know the session any more")
	errCut        = errors.New("the answer was cut off")
	errNoAnswer   = errors.New("the server closed the request without an answer")
	errRedirected = errors.New("the server redirects, which is not followed")
)

// transport is one for all sessions with a server: connections are shared, what
// is said on them is not.
func transport() *http.Transport {
	d := &net.Dialer{Timeout: dialLimit, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: c}, nil
		},
		TLSHandshakeTimeout: dialLimit, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 64, DisableCompression: true,
	}
}

// countedConn counts the bytes that left.
type countedConn struct {
	net.Conn
	n atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b))) // before: who asks meanwhile must not hear that none did
	return c.Conn.Write(b)
}

// connect makes a peer of a server at a URL. Nothing is sent before the first
// message.
func (u *Upstream) connect() *peer {
	c := u.newPeer(u.log)
	w := &httpWire{peer: c, url: u.cfg.URL, hurry: make(chan struct{}), idle: make(chan job), client: &http.Client{
		Transport:     u.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	c.wire = w
	return c
}

// message is an outgoing line, and what headers need of it.
type message struct {
	line    []byte
	method  string
	name    string // of what is called or read
	version string // where it says that it is of the stateless protocol
}

func readMessage(line []byte) message {
	var p parser
	e, _ := p.parse(line)
	m := message{line: line, method: e.method}
	params := e.params.of(line)
	if v, err := unquote(find(find(params, "_meta"), metaVersion)); err == nil && v >= modernVersion {
		m.version = v
		key := "name"
		if e.method == "resources/read" {
			key = "uri"
		}
		m.name, _ = unquote(find(params, key))
	}
	return m
}

func (w *httpWire) request(key uint64, parts ...[]byte) (int, error) {
	line := bytes.Join(parts, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, errGone
	}
	w.wg.Add(1)
	j := job{key, line}
	select {
	case w.idle <- j:
	default:
		go w.work(j)
	}
	return len(line), nil
}

// job is a request to be sent.
type job struct {
	key  uint64
	line []byte
}

// workerIdle is how long a worker waits for its next job. One that has worked has
// the stack that net/http needs.
const workerIdle = 5 * time.Second

func (w *httpWire) work(j job) {
	t := time.NewTimer(workerIdle)
	defer t.Stop()
	for {
		w.post(j.key, readMessage(j.line))
		w.wg.Done()
		t.Reset(workerIdle)
		select {
		case j = <-w.idle:
		case <-t.C:
			return
		case <-w.ctx.Done():
			return
		}
	}
}

// post sends one request and hands on what comes back.
func (w *httpWire) post(key uint64, m message) {
	via := w.peer.pendingOf(key)
	extra := w.mirrored(m)
	for name, values := range headersOf(via) {
		if extra == nil {
			extra = http.Header{}
		}
		extra[name] = values
	}
	resp, sent, err := w.do(w.ctx, http.MethodPost, m, extra)
	if err != nil {
		w.fail(key, m, reply{err: err, closed: true, sent: sent, sentAt: time.Now()})
		return
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && w.hasSession() && m.method != "initialize":
		w.expire()
		w.fail(key, m, reply{err: errNoSession, status: resp.StatusCode})
		return
	case resp.StatusCode >= 300:
		w.refused(key, m, resp)
		return
	}
	if m.method == "initialize" {
		w.keepSession(resp.Header.Get(headerSession))
	}
	var last string
	if isStream(resp) {
		last, err = w.events(resp.Body, via)
	} else {
		err = w.whole(resp.Body, via)
	}
	w.finish(key, m, last, err)
}

// finish gives a request its end whose answer has not come with the response.
func (w *httpWire) finish(key uint64, m message, last string, err error) {
	via := w.peer.pendingOf(key)
	for try := 0; via != nil && last != "" && m.version == "" && try < resumeTries && w.pause(try); try++ {
		resp, _, gerr := w.get(last)
		if gerr != nil || resp.StatusCode != http.StatusOK {
			if gerr == nil {
				_ = resp.Body.Close()
				break
			}
			continue
		}
		var next string
		next, err = w.events(resp.Body, via)
		_ = resp.Body.Close()
		if next != "" {
			last = next
		}
		via = w.peer.pendingOf(key)
	}
	if via == nil {
		return
	}
	if err == nil {
		err = errNoAnswer
	}
	w.fail(key, m, reply{err: fmt.Errorf("%w: %w", errCut, err), closed: true, sent: 1, sentAt: time.Now()})
}

func headersOf(p *pending) http.Header {
	if p == nil {
		return nil
	}
	return p.header
}

func (w *httpWire) pause(try int) bool {
	t := time.NewTimer(time.Duration(try) * 200 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// refused takes a response that is no success. A JSON-RPC error in it is the
// answer of who asks for more than an outcome; in the stateless protocol it is
// everybody's, where the status is the one that goes with it.
func (w *httpWire) refused(key uint64, m message, resp *http.Response) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBodyLimit))
	r := reply{status: resp.StatusCode, retryAfter: retryAfter(resp.Header), closed: true, sent: 1, sentAt: time.Now(), err: statusError(resp.StatusCode, body)}
	if resp.StatusCode < 400 {
		r.err = errRedirected
	}
	var p parser
	if env, err := p.parse(bytes.TrimSpace(body)); err == nil && env.errObj.there() {
		r.env = env
		if m.version != "" && errorStatus(rpcError(env.errObj.of(env.line)).Code) == resp.StatusCode {
			if id, err := keyOf(env.rawID()); err == nil && id == key {
				w.peer.answer(env, nil)
				return
			}
		}
	}
	w.fail(key, m, r)
}

func statusError(status int, body []byte) error {
	text := strings.TrimSpace(string(bytes.ToValidUTF8(body[:min(len(body), 300)], []byte("?"))))
	if text != "" {
		text = ": " + text
	}
	return fmt.Errorf("HTTP %d %s%s", status, http.StatusText(status), text)
}

// fail ends a request without an answer. Without the handshake the peer is of no
// use.
func (w *httpWire) fail(key uint64, m message, r reply) {
	w.mu.Lock()
	w.lastErr = r.err.Error()
	w.mu.Unlock()
	if m.method == "initialize" && r.status >= 400 && r.status < 500 && !r.env.errObj.there() {
		r.env = errorLine(codeInternal, r.err.Error()) // it may speak another protocol
	}
	w.peer.lost(key, r)
	if m.method == "initialize" && !r.env.errObj.there() {
		go w.peer.stop(0)
	}
}

// notify sends a message that gets no answer, and waits until it has arrived:
// what follows must not overtake it.
func (w *httpWire) notify(parts ...[]byte) error {
	m := readMessage(bytes.Join(parts, nil))
	ctx, cancel := context.WithTimeout(w.ctx, notifyLimit)
	defer cancel()
	resp, _, err := w.do(ctx, http.MethodPost, m, nil)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, errorBodyLimit))
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		return statusError(resp.StatusCode, nil)
	}
	if m.method == "notifications/initialized" {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.ended {
			w.wg.Go(w.listen)
		}
	}
	return nil
}

func (w *httpWire) hasSession() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session != ""
}

func (w *httpWire) keepSession(id string) {
	w.mu.Lock()
	w.session = id
	w.mu.Unlock()
}

// expire: the server has forgotten the session. What is under way may still be
// answered; what comes goes to another one.
func (w *httpWire) expire() {
	w.peer.log.Info().Msg("the server has ended the session")
	w.peer.stopSending()
	w.peer.up.detach(w.peer)
	go w.peer.stop(expiredGrace)
}

// expiredGrace is how long what was under way in a session that the server has
// ended may take to be answered.
const expiredGrace = 10 * time.Minute

// end waits for what is under way, grace at most, breaks off the rest, and takes
// leave of the server.
func (w *httpWire) end(grace time.Duration) {
	time.AfterFunc(grace, w.hurried) // whoever wants it sooner
	w.closing.Do(func() {
		w.mu.Lock()
		w.ended = true
		session := w.session
		w.mu.Unlock()
		select {
		case <-w.peer.idle():
		case <-w.hurry:
		}
		if session != "" {
			ctx, cancel := context.WithTimeout(context.Background(), deleteLimit)
			if resp, _, err := w.do(ctx, http.MethodDelete, message{}, nil); err == nil {
				_ = resp.Body.Close()
			}
			cancel()
		}
		w.cancel()
		w.wg.Wait()
		w.peer.left(reply{err: errGone, closed: true, sent: 1, sentAt: time.Now()})
	})
}

func (w *httpWire) hurried() { w.hurries.Do(func() { close(w.hurry) }) }

func (w *httpWire) ending() bool { return w.peer.isDying() }

func (w *httpWire) lastWords() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lastErr == "" {
		return nil
	}
	return []string{w.lastErr}
}
