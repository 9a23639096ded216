package boltstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
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
	reading idem.Instant // the holder's clock, as it was told last
	at      time.Time    // when that arrived; zero: never
}

// freshFor is how old a reading of the holder's clock may be to tell the time
// from it.
const freshFor = time.Second

// note takes in a moment of the holder's clock, which has just arrived.
func (s *session) note(now idem.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if told, ok := s.tellLocked(); now != 0 && (!ok || now > told) { // answers overtake each other
		s.reading, s.at = now, time.Now()
	}
}

// tell is the holder's time, told from its last reading: a little behind, by the
// time that one took to arrive, and never ahead, since both clocks go on
// steadily. false: it has to be asked.
func (s *session) tell() (idem.Instant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tellLocked()
}

func (s *session) tellLocked() (idem.Instant, bool) {
	age := time.Since(s.at)
	return s.reading.Add(age), !s.at.IsZero() && age < freshFor && s.err == nil
}

func noHolder(path string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrNoHolder, path, err)
}

func connect(path string) (*session, error) {
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
	if err := s.greet(r); err != nil {
		_ = c.Close()
		return nil, err
	}
	go s.read(r)
	return s, nil
}

func (s *session) greet(r *bufio.Reader) error {
	_ = s.c.SetDeadline(time.Now().Add(answerTime))
	b, err := encodeFrame(hello{Magic: wireMagic, Version: wireVersion})
	if err != nil {
		return err
	}
	if _, err := s.c.Write(b); err != nil {
		return noHolder(s.path, err)
	}
	var w welcome
	if err := readFrame(r, helloLimit, &w); err != nil {
		return noHolder(s.path, err)
	}
	if w.Error != "" {
		return fmt.Errorf("boltstore: %s: %s", s.path, w.Error)
	}
	return s.c.SetDeadline(time.Time{})
}

func (s *session) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// fail ends the session; whoever waits gets err.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.done)
		_ = s.c.Close()
	}
}

func (s *session) read(r *bufio.Reader) {
	for {
		var a response
		if err := readFrame(r, frameLimit, &a); err != nil {
			s.fail(noHolder(s.path, err))
			return
		}
		s.mu.Lock()
		ch := s.pending[a.ID]
		delete(s.pending, a.ID)
		s.mu.Unlock()
		if ch != nil { // else nobody waits for it any more
			ch <- a
		}
	}
}

// start sends a request. sent is false only if no byte of it left.
func (s *session) start(m method, in any) (id uint64, ch chan response, sent bool, err error) {
	q := call{Method: m}
	if in != nil {
		if q.Body, err = codec.Marshal(in); err != nil {
			return 0, nil, false, err
		}
	}
	ch = make(chan response, 1)
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return 0, nil, false, s.err
	}
	s.next++
	q.ID = s.next
	s.pending[q.ID] = ch
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
		err = noHolder(s.path, err)
		s.fail(err)
	}
	return n > 0, err
}

func (s *session) forget(id uint64) {
	s.mu.Lock()
	delete(s.pending, id)
	s.mu.Unlock()
}

var errSilent = errors.New("it did not answer in time")

// roundTrip asks and waits for the answer. A commit waits for it although its
// context ends: a little patience is better than an unknown outcome.
func (s *session) roundTrip(ctx context.Context, m method, in any) (body []byte, sent bool, err error) {
	id, ch, sent, err := s.start(m, in)
	if err != nil {
		return nil, sent, err
	}
	ended := ctx.Done()
	if m == methodCommit {
		ended = nil
	}
	silent := time.NewTimer(answerTime)
	defer silent.Stop()
	select {
	case a := <-ch:
		return a.Body, true, a.Error.in()
	case <-s.done:
		return nil, true, s.err
	case <-ended:
		err = ctx.Err()
	case <-silent.C:
		err = noHolder(s.path, errSilent)
	}
	s.forget(id)
	return nil, true, err
}

// watch waits as long as ctx, and tells the holder when it no longer does.
func (s *session) watch(ctx context.Context, in watchBody) error {
	id, ch, _, err := s.start(methodWatch, in)
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
