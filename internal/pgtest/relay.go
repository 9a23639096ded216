package pgtest

import (
	"net"
	"slices"
	"sync"
)

// relay passes connections on to a server request by request, so that it knows
// where a request ends and which answer belongs to it. It looks into TLS no
// further than anybody.
type relay struct {
	listener net.Listener
	upstream string
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	traps  []*Trap
	conns  map[*passage]struct{}
}

func newRelay(upstream string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, upstream: upstream, conns: map[*passage]struct{}{}}
	r.running.Go(r.accept)
	return r, nil
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // it was closed
		}
		r.running.Go(func() { r.serve(client.(*net.TCPConn)) })
	}
}

func (r *relay) serve(client *net.TCPConn) {
	server, err := net.Dial("tcp", r.upstream)
	if err != nil {
		reset(client)
		return
	}
	p := &passage{relay: r, client: client, server: server.(*net.TCPConn), statements: newStatements()}
	if !r.enter(p) {
		p.cut()
		return
	}
	defer r.leave(p)
	p.run()
}

func (r *relay) enter(p *passage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.conns[p] = struct{}{}
	}
	return !r.closed
}

func (r *relay) leave(p *passage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, p)
}

// close cuts every connection and waits until nothing of the relay runs.
func (r *relay) close() error {
	err := r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for p := range r.conns {
		p.cut()
	}
	r.mu.Unlock()
	r.running.Wait()
	return err
}

// forget makes the connections that there are silent.
func (r *relay) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.conns {
		p.forgotten.Store(true)
	}
}

func (r *relay) set(t *Trap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traps = append(r.traps, t)
}

func (r *relay) unset(t *Trap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traps = slices.DeleteFunc(r.traps, func(u *Trap) bool { return u == t })
}

// met takes the first trap that is set for one of the statements.
func (r *relay) met(sqls []string) *Trap {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, t := range r.traps {
		if t.matches(sqls) {
			r.traps = slices.Delete(r.traps, i, i+1)
			return t
		}
	}
	return nil
}
