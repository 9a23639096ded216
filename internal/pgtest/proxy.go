package pgtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy stands between a client and a server and does what networks do:
// Toxiproxy for bytes, and behind it a relay of our own for whole requests, see
// [Trap]. Each direction has one fault of bytes at a time: the next takes its
// place. Faults are for connections that are open and for those to come. One
// goroutine at a time may change them.
type Proxy struct {
	t      testing.TB
	toxi   *toxiproxy.Proxy
	listen string
	relay  *relay
}

// Direction is which of a connection's two streams a fault is in.
type Direction string

const (
	Up   Direction = "upstream"   // from the client to the server
	Down Direction = "downstream" // from the server to the client
)

// faultTime is how long Toxiproxy may take to change a stream.
const faultTime = 10 * time.Second

// Proxy starts a proxy in front of the server, for as long as the test runs.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	r, err := newRelay(s.Addr())
	if err != nil {
		t.Fatalf("the proxy: %v", err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Errorf("the proxy: %v", err)
		}
	})
	port, reserved, err := reserve("127.0.0.1")
	if err != nil {
		t.Fatalf("the proxy: %v", err)
	}
	t.Cleanup(func() { _ = reserved.Close() })
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{t: t, listen: listen, relay: r,
		toxi: toxiproxy.NewProxy(server, t.Name(), listen, r.listener.Addr().String())}
	if err := p.toxi.Start(); err != nil {
		t.Fatalf("the proxy: %v", err)
	}
	t.Cleanup(p.toxi.Stop)
	return p
}

// Addr is the host and port that clients connect to.
func (p *Proxy) Addr() string { return p.listen }

// URL names a database of the server behind the proxy, as [Server.URL] does.
func (p *Proxy) URL(db string, params ...string) string {
	return databaseURL(p.listen, db, append(params, "sslmode=disable"))
}

// Through turns a URL of the server into one that leads through the proxy.
func (p *Proxy) Through(serverURL string) string {
	p.t.Helper()
	return through(p.t, serverURL, p.listen)
}

// Cut closes all connections, whatever is on its way, and refuses new ones.
func (p *Proxy) Cut() { p.toxi.Stop() }

// Restore accepts connections again after [Proxy.Cut]. A process that was just
// being started then may hold the listener for a moment longer.
func (p *Proxy) Restore() {
	p.t.Helper()
	for end := time.Now().Add(faultTime); ; time.Sleep(look) {
		err := p.toxi.Start()
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			p.t.Fatalf("the proxy: restore: %v", err)
		}
	}
}

// Forget makes the connections that there are lose their other end without a
// word, as a firewall does that forgets idle ones: what the client sends
// vanishes, and nothing comes. New connections work.
func (p *Proxy) Forget() { p.relay.forget() }

// Latency delays everything in one direction by d, give or take jitter.
func (p *Proxy) Latency(dir Direction, d, jitter time.Duration) {
	p.t.Helper()
	p.add("latency", dir, map[string]int64{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()})
}

// Bandwidth limits one direction, in kilobytes a second.
func (p *Proxy) Bandwidth(dir Direction, kilobytes int) {
	p.t.Helper()
	p.add("bandwidth", dir, map[string]int64{"rate": int64(kilobytes)})
}

// Timeout makes what is sent in one direction vanish, and closes a connection
// after d; with 0 it stays open, so that its ends wait for each other forever.
func (p *Proxy) Timeout(dir Direction, d time.Duration) {
	p.t.Helper()
	p.add("timeout", dir, map[string]int64{"timeout": d.Milliseconds()})
}

// ResetPeer ends a connection d after something is next sent in this direction,
// and swallows that. Connections that are opened from now on end with a TCP
// reset.
func (p *Proxy) ResetPeer(dir Direction, d time.Duration) {
	p.t.Helper()
	p.add("reset_peer", dir, map[string]int64{"timeout": d.Milliseconds()})
}

// SlowClose keeps one direction open for d after its sender has closed it.
func (p *Proxy) SlowClose(dir Direction, d time.Duration) {
	p.t.Helper()
	p.add("slow_close", dir, map[string]int64{"delay": d.Milliseconds()})
}

// CutAfterBytes closes each connection once n more bytes have gone one way.
func (p *Proxy) CutAfterBytes(dir Direction, n int) {
	p.t.Helper()
	p.add("limit_data", dir, map[string]int64{"bytes": int64(n)})
}

// Heal takes back every fault but [Proxy.Cut] and the traps. It closes
// connections that [Proxy.Timeout] made bytes vanish from.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.change("heal", func() error {
		p.toxi.Toxics.ResetToxics(context.Background())
		return nil
	})
}

// add puts a fault in the place of another in its direction: Toxiproxy loses
// count when a connection with two of them ends.
func (p *Proxy) add(kind string, dir Direction, attributes map[string]int64) {
	p.t.Helper()
	name := string(dir)
	b, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": dir, "attributes": attributes})
	if err != nil {
		p.t.Fatalf("the proxy: %s: %v", name, err)
	}
	p.change(kind, func() error {
		if p.toxi.Toxics.GetToxic(name) != nil {
			if err := p.toxi.Toxics.RemoveToxic(context.Background(), name); err != nil {
				return err
			}
		}
		_, err := p.toxi.Toxics.AddToxicJson(bytes.NewReader(b))
		return err
	})
}

// change bounds a change of the streams: Toxiproxy waits for every stream, and
// one that its client has just left may never take part.
func (p *Proxy) change(what string, do func() error) {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			p.t.Fatalf("the proxy: %s: %v", what, err)
		}
	case <-time.After(faultTime):
		p.t.Fatalf("the proxy: %s: a stream does not take the change within %v", what, faultTime)
	}
}
