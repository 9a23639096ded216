package mcp

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// whole reads a body that is one message.
func (w *httpWire) whole(body io.Reader, via *pending) error {
	limit := int64(w.peer.up.cfg.lineLimit)
	b, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return err
	case int64(len(b)) > limit:
		return errLong
	}
	if b = bytes.TrimSpace(b); len(b) > 0 {
		var p parser
		var noise burst
		w.peer.line(&p, b, &noise, via)
	}
	return nil
}

// events reads a stream of events; last is the id of the last one.
func (w *httpWire) events(body io.Reader, via *pending) (last string, err error) {
	var p parser
	var noise burst
	in := newEventReader(body, w.peer.up.cfg.lineLimit)
	for {
		ev, err := in.next()
		if ev.id != "" {
			last = ev.id
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return last, err
		}
		if (ev.name == "" || ev.name == "message") && len(ev.data) > 0 {
			w.peer.line(&p, ev.data, &noise, via)
		}
	}
}

func isStream(resp *http.Response) bool {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t == "text/event-stream"
}

// listen keeps the stream open on which the server speaks on its own.
func (w *httpWire) listen() {
	var last string
	for try := 0; w.pause(min(try, 25)); try++ {
		resp, _, err := w.get(last)
		if err != nil {
			continue
		}
		if resp.StatusCode != http.StatusOK || !isStream(resp) {
			_ = resp.Body.Close()
			if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
				return // it has none
			}
			continue
		}
		begun := time.Now()
		next, _ := w.events(resp.Body, nil)
		_ = resp.Body.Close()
		if next != "" {
			last = next
		}
		if time.Since(begun) > time.Second {
			try = 0
		}
	}
}

func (w *httpWire) get(last string) (*http.Response, int, error) {
	var extra http.Header
	if last != "" {
		extra = http.Header{headerEvent: {last}}
	}
	return w.do(w.ctx, http.MethodGet, message{}, extra)
}
