package pgtest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// passage is one connection through a relay.
type passage struct {
	relay          *relay
	client, server *net.TCPConn
	statements     statements
	forgotten      atomic.Bool // what the client sends vanishes

	mu       sync.Mutex
	requests int   // sent to the server; the first is the start of the session
	answered int   // of these, what the server has finished
	trap     *Trap // swallows an answer, unless nil
	swallow  int   // the request whose answer that is
}

func (p *passage) run() {
	defer p.server.Close()
	defer p.client.Close()
	seen, err := p.begin()
	if err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		if seen {
			p.up()
		} else {
			_, _ = io.Copy(p.server, p.client)
		}
		// What has reached us reaches the server, whose answers nobody reads.
		_ = p.server.CloseWrite()
	})
	if seen {
		p.down()
	} else {
		_, _ = io.Copy(p.client, p.server)
	}
	_ = p.client.Close() // ends up
	up.Wait()
	if trap := p.swallows(); trap != nil && !trap.Sprung() { // its request met nobody any more
		close(trap.sprung)
	}
}

// begin passes on what comes before the first typed message, and reports
// whether these can be seen.
func (p *passage) begin() (seen bool, err error) {
	for {
		m, err := readFirst(p.client)
		if err != nil {
			return false, err
		}
		if _, err := p.server.Write(m.raw); err != nil {
			return false, err
		}
		switch m.code() {
		case codeSSL, codeGSS:
			answer := make([]byte, 1)
			if _, err := io.ReadFull(p.server, answer); err != nil {
				return false, err
			}
			if _, err := p.client.Write(answer); err != nil {
				return false, err
			}
			if answer[0] != 'N' {
				return false, nil
			}
		case codeCancel:
			return false, nil
		default:
			p.requests = 1
			return true, nil
		}
	}
}

// up passes on what the client sends, each request as a whole, so that nothing
// of a trapped request has gone ahead.
func (p *passage) up() {
	from := bufio.NewReader(p.client)
	var pending []byte
	var sqls []string
	for {
		m, err := readMessage(from)
		if err != nil {
			return
		}
		pending = append(pending, m.raw...)
		if sql, ok := p.statements.executes(m); ok {
			sqls = append(sqls, sql)
		}
		switch m.kind {
		case 'P', 'B', 'D', 'E', 'C': // the request goes on
			continue
		}
		if p.forgotten.Load() {
			pending, sqls = pending[:0], nil
			continue
		}
		complete := m.kind == 'Q' || m.kind == 'S' || m.kind == 'F'
		if !p.pass(sqls, complete) {
			return
		}
		if _, err := p.server.Write(pending); err != nil {
			return
		}
		pending, sqls = pending[:0], nil
	}
}

// pass lets a request meet a trap and reports whether it goes on.
func (p *passage) pass(sqls []string, complete bool) bool {
	var trap *Trap
	if p.swallows() == nil { // else the connection is lost already
		trap = p.relay.met(sqls)
	}
	if trap != nil && trap.kind == holdRequest {
		close(trap.sprung)
		<-trap.free
	}
	if trap != nil && trap.kind == dropRequest {
		p.cut()
		close(trap.sprung)
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if trap != nil && trap.kind == dropResponse {
		p.trap, p.swallow = trap, p.requests
	}
	if complete {
		p.requests++
	}
	return true
}

func (p *passage) swallows() *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trap
}

// down passes on what the server sends, until it sends no more.
func (p *passage) down() {
	from := bufio.NewReader(p.server)
	for {
		m, err := readMessage(from)
		if err != nil {
			if trap := p.swallows(); trap != nil {
				close(trap.sprung) // the server has ended before it answered
			}
			return
		}
		swallowed, last := p.answers(m)
		switch {
		case last:
			p.cut()
			close(p.trap.sprung)
			return
		case swallowed:
			continue
		}
		_, _ = p.client.Write(m.raw) // where it fails the client is gone, and the server ends
	}
}

// answers counts what the server has finished. It reports whether the message
// is swallowed, and whether it is the last that is.
func (p *passage) answers(m message) (swallowed, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	swallowed = p.trap != nil && p.answered >= p.swallow
	if said, ok := m.answer(); ok && swallowed {
		p.trap.answer = said
	}
	if m.kind == 'Z' { // ReadyForQuery
		p.answered++
		last = swallowed
	}
	return swallowed, last
}

// cut resets both sides.
func (p *passage) cut() {
	reset(p.client)
	reset(p.server)
}

func reset(c *net.TCPConn) {
	if err := c.SetLinger(0); err == nil || errors.Is(err, net.ErrClosed) {
		_ = c.Close()
	}
}
