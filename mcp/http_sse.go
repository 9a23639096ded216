package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// sseWire is the wire to a server of protocol 2024-11-05: it speaks on one stream
// of events, whose first one says where to post to.
type sseWire struct {
	*httpWire
	ready chan struct{} // closed when it is known where to post to
	quiet chan struct{} // closed when the stream has ended
}

var errNoStream = errors.New("the server's stream of events could not be opened")

// connectSSE makes a peer of such a server and opens its stream.
func (u *Upstream) connectSSE() *peer {
	c := u.connect()
	w := &sseWire{httpWire: c.wire.(*httpWire), ready: make(chan struct{}), quiet: make(chan struct{})}
	c.wire = w
	w.wg.Go(w.listen)
	return c
}

// listen reads the stream to its end, which is the peer's.
func (w *sseWire) listen() {
	err := w.stream()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	w.mu.Lock()
	w.lastErr = err.Error()
	w.mu.Unlock()
	close(w.quiet)
	w.peer.stopSending()
	go w.peer.stop(0)
}

func (w *sseWire) stream() error {
	base, err := url.Parse(w.url)
	if err != nil {
		return err
	}
	resp, _, err := w.do(w.ctx, http.MethodGet, message{}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !isStream(resp) {
		return statusError(resp.StatusCode, nil)
	}
	var p parser
	var noise burst
	in := newEventReader(resp.Body, w.peer.up.cfg.lineLimit)
	for told := false; ; {
		ev, err := in.next()
		switch {
		case err != nil:
			return err
		case ev.name == "endpoint" && !told:
			at, err := base.Parse(string(bytes.TrimSpace(ev.data)))
			if err != nil || at.Host != base.Host || at.Scheme != base.Scheme {
				return fmt.Errorf("the server names another place to post to: %.200q", ev.data)
			}
			w.mu.Lock()
			w.url = at.String()
			w.mu.Unlock()
			told = true
			close(w.ready)
		case (ev.name == "" || ev.name == "message") && len(ev.data) > 0:
			w.peer.line(&p, ev.data, &noise, nil)
		}
	}
}

// request posts a request. Its answer comes on the stream.
func (w *sseWire) request(key uint64, parts ...[]byte) (int, error) {
	m := readMessage(bytes.Join(parts, nil))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, errGone
	}
	w.wg.Go(func() {
		if err := w.opened(w.ctx); err != nil {
			w.fail(key, m, reply{err: err})
			return
		}
		resp, sent, err := w.do(w.ctx, http.MethodPost, m, headersOf(w.peer.pendingOf(key)))
		if err != nil {
			w.fail(key, m, reply{err: err, closed: true, sent: sent, sentAt: time.Now()})
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			w.refused(key, m, resp)
		}
	})
	return len(m.line), nil
}

// opened waits until it is known where to post to.
func (w *sseWire) opened(ctx context.Context) error {
	t := time.NewTimer(dialLimit)
	defer t.Stop()
	select {
	case <-w.ready:
		return nil
	case <-w.quiet:
	case <-t.C:
	case <-ctx.Done():
	}
	return errNoStream
}

func (w *sseWire) notify(parts ...[]byte) error {
	ctx, cancel := context.WithTimeout(w.ctx, notifyLimit)
	defer cancel()
	if err := w.opened(ctx); err != nil {
		return err
	}
	resp, _, err := w.do(ctx, http.MethodPost, readMessage(bytes.Join(parts, nil)), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return statusError(resp.StatusCode, nil)
	}
	return nil
}
