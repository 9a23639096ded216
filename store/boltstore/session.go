package boltstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

const (
	// freshFor is how old a reading of the holder's clock may be to tell the time
	// from it.
	freshFor = time.Second
	// silentTime is how long a holder that let a call wait in vain is waited for
	// by the next ones, until it is heard again.
	silentTime = 200 * time.Millisecond
	// perMiB is how much longer a large request may take.
	perMiB = time.Second
)

// session is one connection to the holder. Its only goroutine reads.
type session struct {
	path string // of the ledger, for messages
	c    net.Conn

	out sync.Mutex // one frame at a time

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan response
	err     error // why it ended
	done    chan struct{}
	closing bool         // the holder takes nothing new; answers may still come
	silent  bool         // a call waited in vain, and nothing was heard since
	reading idem.Instant // the holder's clock, as it was told last
	at      time.Time    // when that arrived
}

// connect reaches the holder within answerTime.
func connect(path string) (*session, error) {
	end := time.Now().Add(answerTime)
	sock := socketPath(path)
	if err := ownSocketDir(sock, false); err != nil {
		return nil, noHolder(path, err)
	}
	c, err := net.DialTimeout("unix", sock, answerTime)
	if err != nil {
		return nil, noHolder(path, err)
	}
	s := &session{path: path, c: c, pending: map[uint64]chan response{}, done: make(chan struct{})}
	r := bufio.NewReader(c)
	if err := s.greet(r, end); err != nil {
		_ = c.Close()
		return nil, err
	}
	go s.read(r)
	return s, nil
}

func (s *session) greet(r *bufio.Reader, end time.Time) error {
	_ = s.c.SetDeadline(end)
	b, err := encodeFrame(hello{Magic: wireMagic, Version: wireVersion})
	if err != nil {
		return err
	}
	if _, err := s.c.Write(b); err != nil {
		return s.lost(err)
	}
	var w welcome
	if err := readFrame(r, helloLimit, &w); err != nil {
		return s.lost(err)
	}
	if w.Error != "" {
		return errors.New("boltstore: " + s.path + ": " + w.Error)
	}
	s.reading, s.at = w.Now, time.Now()
	return s.c.SetDeadline(time.Time{})
}

// lost is the error of a read or write.
func (s *session) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return silent(s.path)
	}
	return noHolder(s.path, err)
}

// usable reports whether a request may be sent.
func (s *session) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && !s.closing
}

// retire keeps further requests away from a holder that is closing.
func (s *session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

// fail ends the session; whoever waits gets the error, which it returns: that of
// the first call.
func (s *session) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.done)
		_ = s.c.Close()
	}
	return s.err
}

func (s *session) read(r *bufio.Reader) {
	for {
		var a response
		if err := readFrame(r, frameLimit, &a); err != nil {
			_ = s.fail(noHolder(s.path, err))
			return
		}
		s.mu.Lock()
		ch := s.pending[a.ID]
		delete(s.pending, a.ID)
		s.silent = false
		s.mu.Unlock()
		if ch != nil { // else nobody waits for it any more
			ch <- a
		}
	}
}

// start sends a request of somebody who waits until end; zero: as long as it
// takes. sent is false only if no byte of it left.
func (s *session) start(m method, body []byte, end time.Time) (id uint64, ch chan response, sent bool, err error) {
	q := call{Method: m, Body: body}
	ch = make(chan response, 1)
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return 0, nil, false, s.err
	}
	s.next++
	q.ID = s.next
	s.pending[q.ID] = ch
	if !end.IsZero() {
		q.Until = s.reading.Add(end.Sub(s.at))
	}
	s.mu.Unlock()
	b, err := encodeFrame(q)
	if err == nil {
		sent, err = s.send(b)
	}
	if err != nil {
		s.forget(q.ID)
	}
	return q.ID, ch, sent, err
}

func (s *session) send(b []byte) (sent bool, err error) {
	s.out.Lock()
	defer s.out.Unlock()
	_ = s.c.SetWriteDeadline(time.Now().Add(answerTime))
	n, err := s.c.Write(b)
	if err != nil {
		err = s.fail(s.lost(err))
	}
	return n > 0, err
}

func (s *session) forget(id uint64) {
	s.mu.Lock()
	delete(s.pending, id)
	s.mu.Unlock()
}

// patience is until when a call that began at begin waits for its answer.
func (s *session) patience(begin time.Time) time.Time {
	end := begin.Add(answerTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	if soon := time.Now().Add(silentTime); s.silent && soon.Before(end) {
		return soon
	}
	return end
}

// roundTrip asks and waits for the answer of a call that began at begin. A
// commit waits for it although its context ends: a little patience is better
// than an unknown outcome.
func (s *session) roundTrip(ctx context.Context, m method, in any, begin time.Time) (body []byte, sent bool, err error) {
	var asked []byte
	if in != nil {
		if asked, err = codec.Marshal(in); err != nil {
			return nil, false, err
		}
	}
	end := s.patience(begin).Add(time.Duration(len(asked)) * perMiB >> 20)
	id, ch, sent, err := s.start(m, asked, end)
	if err != nil {
		return nil, sent, err
	}
	ended := ctx.Done()
	if m == methodCommit {
		ended = nil
	}
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	select {
	case a := <-ch:
		return a.Body, true, a.Error.in()
	case <-s.done:
		select {
		case a := <-ch: // it came before the end
			return a.Body, true, a.Error.in()
		default:
		}
		return nil, true, s.err
	case <-ended:
		err = ctx.Err()
	case <-over.C:
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
		err = silent(s.path)
	}
	s.forget(id)
	return nil, true, err
}

// watch waits as long as ctx, and tells the holder when it no longer does.
func (s *session) watch(ctx context.Context, in watchBody) error {
	asked, err := codec.Marshal(in)
	if err != nil {
		return err
	}
	id, ch, _, err := s.start(methodWatch, asked, time.Time{})
	if err != nil {
		return err
	}
	select {
	case a := <-ch:
		return a.Error.in()
	case <-s.done:
		return s.err
	case <-ctx.Done():
	}
	s.forget(id)
	if b, err := encodeFrame(call{ID: id, Method: methodCancel}); err == nil {
		_, _ = s.send(b)
	}
	return ctx.Err()
}

// note takes in a moment of the holder's clock, which has just arrived.
func (s *session) note(now idem.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := time.Since(s.at)
	if now != 0 && (age >= freshFor || now > s.reading.Add(age)) { // answers overtake each other
		s.reading, s.at = now, time.Now()
	}
}

// tell is the holder's time, told from its last reading: a little behind, by the
// time that one took to arrive, and never ahead, since both clocks go on
// steadily. false: it has to be asked.
func (s *session) tell() (idem.Instant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := time.Since(s.at)
	return s.reading.Add(age), age < freshFor && s.err == nil
}
