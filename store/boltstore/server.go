package boltstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

const (
	// answerTime is how long either side waits for the other, Watch excepted.
	answerTime = 2 * time.Second
	// unaryLimit and watchLimit bound what one connection has open. A client
	// over the first is not read from until it got answers.
	unaryLimit = 256
	watchLimit = 4096
)

// server gives other processes the Store's methods over the socket.
type server struct {
	store  *Store
	path   string
	l      *net.UnixListener
	ctx    context.Context // ends with the server
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  bool
}

func serve(s *Store) (*server, error) {
	path := socketPath(s.path)
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	srv := &server{store: s, path: path, l: l, conns: map[net.Conn]struct{}{}}
	srv.ctx, srv.cancel = context.WithCancel(context.Background())
	srv.wg.Go(srv.accept)
	return srv, nil
}

// close ends every connection and returns when nothing of the server runs any
// more. The caller holds the ledger's lock, so the socket is its own.
func (srv *server) close() {
	srv.mu.Lock()
	srv.done = true
	for c := range srv.conns {
		_ = c.SetReadDeadline(time.Now()) // no more requests; answers may leave
	}
	srv.mu.Unlock()
	_ = os.Remove(srv.path)
	_ = srv.l.Close()
	srv.cancel()
	srv.wg.Wait()
}

func (srv *server) accept() {
	for {
		c, err := srv.l.Accept()
		if err != nil {
			if srv.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, for one: it passes.
			select {
			case <-srv.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		srv.mu.Lock()
		if srv.done {
			srv.mu.Unlock()
			_ = c.Close()
			return
		}
		srv.conns[c] = struct{}{}
		srv.wg.Go(func() { srv.talk(c) })
		srv.mu.Unlock()
	}
}

// peer is one connection.
type peer struct {
	srv   *server
	c     net.Conn
	ctx   context.Context // ends with the connection
	unary chan struct{}
	wg    sync.WaitGroup

	out sync.Mutex // one frame at a time

	mu      sync.Mutex
	watches map[uint64]context.CancelFunc
}

func (srv *server) talk(c net.Conn) {
	defer func() {
		srv.mu.Lock()
		delete(srv.conns, c)
		srv.mu.Unlock()
		_ = c.Close()
	}()
	r := bufio.NewReader(c)
	if !srv.greet(c, r) {
		return
	}
	ctx, cancel := context.WithCancel(srv.ctx)
	p := &peer{srv: srv, c: c, ctx: ctx, unary: make(chan struct{}, unaryLimit), watches: map[uint64]context.CancelFunc{}}
	defer p.wg.Wait()
	defer cancel()
	for {
		var q call
		if err := readFrame(r, frameLimit, &q); err != nil {
			return
		}
		p.take(q)
	}
}

func (srv *server) greet(c net.Conn, r *bufio.Reader) bool {
	_ = c.SetReadDeadline(time.Now().Add(answerTime))
	var h hello
	if err := readFrame(r, helloLimit, &h); err != nil || h.Magic != wireMagic {
		return false
	}
	w := welcome{Version: wireVersion, Now: srv.store.clock.Now()}
	if h.Version != wireVersion {
		w.Error = fmt.Sprintf("the holder of the ledger speaks version %d, this program %d: use one version of it", wireVersion, h.Version)
	}
	if (&peer{c: c}).send(w) != nil || w.Error != "" {
		return false
	}
	// close sets a deadline of its own, which must not be undone.
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.done {
		return false
	}
	_ = c.SetReadDeadline(time.Time{})
	return true
}

// take starts what a client asks for.
func (p *peer) take(q call) {
	switch q.Method {
	case methodCancel:
		p.mu.Lock()
		if cancel := p.watches[q.ID]; cancel != nil {
			cancel()
		}
		p.mu.Unlock()
	case methodWatch:
		ctx, cancel := context.WithCancel(p.ctx)
		p.mu.Lock()
		full := len(p.watches) >= watchLimit
		if !full {
			p.watches[q.ID] = cancel
		}
		p.mu.Unlock()
		if full {
			cancel()
			p.answer(q.ID, nil, errors.New("boltstore: too many watches on one connection"))
			return
		}
		p.wg.Go(func() {
			defer cancel()
			p.answer(q.ID, nil, p.watch(ctx, q))
			p.mu.Lock()
			delete(p.watches, q.ID)
			p.mu.Unlock()
		})
	default:
		p.unary <- struct{}{}
		p.wg.Go(func() {
			defer func() { <-p.unary }()
			body, err := p.unaryCall(q)
			p.answer(q.ID, body, err)
		})
	}
}

func (p *peer) watch(ctx context.Context, q call) error {
	var b watchBody
	if err := codec.Unmarshal(q.Body, &b); err != nil {
		return err
	}
	return p.srv.store.Watch(ctx, b.ID, b.After)
}

func (p *peer) unaryCall(q call) (body any, err error) {
	s := p.srv.store
	left := answerTime
	if q.Until != 0 {
		if left = q.Until.Sub(s.clock.Now()); left <= 0 {
			return nil, errLate
		}
	}
	switch q.Method {
	case methodLoad:
		var refs []idem.Ref
		if err := codec.Unmarshal(q.Body, &refs); err != nil {
			return nil, err
		}
		return s.Load(p.ctx, refs...)
	case methodCommit:
		var c idem.Change
		if err := codec.Unmarshal(q.Body, &c); err != nil {
			return nil, err
		}
		// A client that is gone does not stop what it has asked for. One that does
		// not wait any longer does, as long as no transaction has it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), left)
		defer cancel()
		stamp, err := s.Commit(ctx, c)
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, idem.ErrCommitUnknown) {
			err = errLate
		}
		return stamp, err
	case methodList:
		var query idem.Query
		if err := codec.Unmarshal(q.Body, &query); err != nil {
			return nil, err
		}
		page, err := s.List(p.ctx, query)
		return pageOut(page), err
	case methodClock:
		return s.Clock(p.ctx)
	}
	return nil, fmt.Errorf("boltstore: unknown method %d", q.Method)
}

func (p *peer) answer(id uint64, body any, err error) {
	if err != nil && p.ctx != nil && p.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = idem.ErrClosed // the connection ends because the store closes, or nobody reads this
	}
	r := response{ID: id, Error: errorOut(err)}
	if err == nil && body != nil {
		if r.Body, err = codec.Marshal(body); err != nil {
			r.Error = errorOut(err)
		}
	}
	if len(r.Body) > frameLimit-1024 {
		r.Body, r.Error = nil, errorOut(fmt.Errorf("boltstore: the answer of %d bytes is over the limit of a frame", len(r.Body)))
	}
	_ = p.send(r)
}

// send writes one frame. A client that does not read for too long is dropped:
// half a frame would make the rest unreadable.
func (p *peer) send(v any) error {
	b, err := encodeFrame(v)
	if err != nil {
		return err
	}
	p.out.Lock()
	defer p.out.Unlock()
	_ = p.c.SetWriteDeadline(time.Now().Add(answerTime))
	if _, err := p.c.Write(b); err != nil {
		_ = p.c.Close()
		return err
	}
	return nil
}
