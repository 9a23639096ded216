package mcp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"
)

// do makes one HTTP request, once. sent is 0 where it is known that none of its
// bytes left: no connection could be had, or nothing was written to it.
func (w *httpWire) do(ctx context.Context, method string, m message, extra http.Header) (resp *http.Response, sent int, err error) {
	var body io.Reader
	if m.line != nil {
		body = bytes.NewReader(m.line)
	}
	var left departure
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: left.got})
	w.mu.Lock()
	at := w.url
	w.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, 0, err
	}
	// With it, and with a key in a header, net/http would send the request again by
	// itself where a connection dies.
	req.GetBody = nil
	w.dress(req, m)
	for name, values := range extra {
		req.Header[name] = values
	}
	resp, err = w.client.Do(req)
	if err != nil {
		if left.any() {
			sent = 1
		}
		return nil, sent, err
	}
	return resp, 1, nil
}

// dress sets the headers of a request.
func (w *httpWire) dress(req *http.Request, m message) {
	h := req.Header
	for name, value := range w.peer.up.cfg.Headers {
		h.Set(name, value)
	}
	h.Set("Accept", "application/json, text/event-stream")
	switch req.Method {
	case http.MethodPost:
		h.Set("Content-Type", "application/json")
	case http.MethodGet:
		h.Set("Accept", "text/event-stream")
	}
	w.mu.Lock()
	session, version := w.session, w.version
	w.mu.Unlock()
	if m.version != "" {
		h.Set(headerVersion, m.version)
		h.Set(headerMethod, m.method)
		if m.name != "" {
			h.Set(headerName, headerText(m.name))
		}
		return
	}
	if session != "" {
		h.Set(headerSession, session)
	}
	if version != "" && m.method != "initialize" {
		h.Set(headerVersion, version)
	}
}

// headerText is a text as a header may carry it (SEP-2243).
func headerText(s string) string {
	plain := strings.TrimSpace(s) == s && !strings.HasPrefix(s, "=?base64?")
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= 0x20 && s[i] <= 0x7e
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// departure tells whether bytes of a request left on the connection that it got.
type departure struct {
	mu     sync.Mutex
	conn   *countedConn // nil: none was got, or it cannot be counted
	before int64
	gotten bool
}

func (d *departure) got(info httptrace.GotConnInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gotten = true
	c := info.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if d.conn, _ = c.(*countedConn); d.conn != nil {
		d.before = d.conn.n.Load()
	}
}

func (d *departure) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gotten && (d.conn == nil || d.conn.n.Load() != d.before)
}

// retryAfter reads Retry-After, as seconds or a date: 0: there is none; negative:
// absurd.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		if n <= 0 {
			return -1
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(text)
	if d := time.Until(at); err == nil && d > 0 {
		return d
	}
	return -1
}

// agreed notes the protocol's version that a server's answer to initialize names.
func (w *httpWire) agreed(result []byte) {
	if v, err := unquote(find(result, "protocolVersion")); err == nil {
		w.mu.Lock()
		w.version = v
		w.mu.Unlock()
	}
}

// event is one of a stream of server-sent events (WHATWG HTML, section 9.2).
type event struct {
	name, id string
	data     []byte
}

type eventReader struct{ lines *lineReader }

func newEventReader(r io.Reader, limit int) *eventReader {
	lines := newLineReader(r, limit)
	lines.blank = true
	return &eventReader{lines}
}

// next returns the next event. With an error it holds what was read of one that
// is not whole, which is not to be handed on but for its id.
func (r *eventReader) next() (event, error) {
	var ev event
	some := false
	for {
		line, err := r.lines.next()
		switch {
		case errors.Is(err, errLong):
			return event{id: ev.id}, err
		case err == nil && len(line) == 0:
			if some {
				return ev, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "data":
			if ev.data != nil {
				ev.data = append(ev.data, '\n')
			}
			ev.data = append(ev.data, value...)
			some = true
		case "event":
			ev.name, some = string(value), true
		case "id":
			ev.id = string(value)
		}
		if err != nil {
			return event{id: ev.id}, err
		}
	}
}
