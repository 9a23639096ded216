package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Config says what a Gateway stands between.
type Config struct {
	Guard    Guard    // required
	Servers  []Server // at least one, each with a name of its own
	Policy   Policy   // required
	Identity Identity
	Tenant   string   // of every ask whose client has no other; empty: default
	Tenants  []string // further ones, of clients over HTTP
	// Prefix: clients see server__tool (names: prefix).
	Prefix  bool
	Version string // of this program, for clients of several servers
	// Control has the tools of the gateway itself; nil: there are none.
	Control ControlTools

	// Drain is how long running calls are waited for when the client has gone.
	// 0: 10 s.
	Drain time.Duration
	// ClientWait is how long a query of ours waits for a client to do the
	// handshake. 0: 2 s; negative: no client will come.
	ClientWait time.Duration
	Log        zerolog.Logger
}

// Gateway serves clients in front of upstream servers. Each client has
// conversations of its own with them, as if it had started them itself.
type Gateway struct {
	cfg      Config
	identity *identity
	controls *controls // nil: there are none
	open     func(Server) *Upstream
	begun    time.Time

	mu      sync.Mutex
	links   map[string][]*Upstream // of clients, by the server's name, the latest last
	own     map[string]*Upstream   // for queries where no client is there
	changed chan struct{}          // closed and made anew when links change
	closed  bool
}

// lostLimit bounds how long the guard may take to write down what was lost with
// a process.
const lostLimit = 10 * time.Second

// NewGateway checks the configuration and returns a Gateway.
func NewGateway(cfg Config) (*Gateway, error) {
	switch {
	case cfg.Guard == nil:
		return nil, errors.New("mcp: Config.Guard is missing")
	case len(cfg.Servers) == 0:
		return nil, errors.New("mcp: Config.Servers is empty")
	case cfg.Policy == nil:
		return nil, errors.New("mcp: Config.Policy is missing")
	case cfg.Drain < 0:
		return nil, fmt.Errorf("mcp: Config.Drain is negative: %s", cfg.Drain)
	}
	names := map[string]bool{}
	cfg.Servers = slices.Clone(cfg.Servers)
	for i, s := range cfg.Servers {
		cfg.Servers[i].offers = &offers{}
		if s.Name == "" || names[s.Name] {
			return nil, fmt.Errorf("mcp: Config.Servers: the name %q is empty or not the only one", s.Name)
		}
		names[s.Name] = true
	}
	if cfg.Drain == 0 {
		cfg.Drain = 10 * time.Second
	}
	if cfg.ClientWait == 0 {
		cfg.ClientWait = clientWait
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	id, err := compile(cfg.Identity)
	if err != nil {
		return nil, err
	}
	return &Gateway{cfg: cfg, identity: id, controls: newControls(cfg.Control), open: NewUpstream, begun: time.Now(), links: map[string][]*Upstream{}, own: map[string]*Upstream{}, changed: make(chan struct{})}, nil
}

// link makes a conversation with a server for a client.
func (g *Gateway) link(srv Server) *Upstream {
	srv.ClientWait = g.cfg.ClientWait
	up := g.upstream(srv)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links[srv.Name] = append(g.links[srv.Name], up)
	g.changedLocked()
	return up
}

// linkAll makes a conversation with every server for a client. One of several
// that cannot be started is tried again for ever.
func (g *Gateway) linkAll() (ups []*Upstream) {
	for _, srv := range g.cfg.Servers {
		ups = append(ups, g.link(srv))
	}
	return ups
}

// unlink ends a client's conversation.
func (g *Gateway) unlink(up *Upstream) {
	up.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	name := up.cfg.Name
	for i, l := range g.links[name] {
		if l == up {
			g.links[name] = append(g.links[name][:i:i], g.links[name][i+1:]...)
		}
	}
}

func (g *Gateway) upstream(srv Server) *Upstream {
	srv.patient = len(g.cfg.Servers) > 1
	if srv.OnExit == nil {
		asked := new(atomic.Bool)
		srv.stateful = asked
		srv.OnExit = func(incarnation string) {
			if asked.Load() {
				g.lostProcess(srv.Name, incarnation)
			}
		}
	}
	return g.open(srv)
}

func (g *Gateway) changedLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// Call calls a tool of a server past the guard: it is for queries. It goes to the
// incarnation that is named; empty: the way of the client that came last, which is
// waited for a little, and else a way of our own. Results and errors are those of
// [Upstream.Call].
func (g *Gateway) Call(ctx context.Context, server, incarnation, tool string, args []byte) ([]byte, error) {
	if incarnation != "" {
		if up := g.wayTo(server, incarnation); up != nil {
			return up.Call(ctx, tool, args)
		}
		return nil, fmt.Errorf("%s: %w", server, errGone)
	}
	up, err := g.way(ctx, server)
	if err != nil {
		return nil, err
	}
	return up.Call(ctx, tool, args)
}

// wayTo finds who speaks with an incarnation.
func (g *Gateway) wayTo(server, incarnation string) *Upstream {
	g.mu.Lock()
	defer g.mu.Unlock()
	ways := g.links[server]
	if own := g.own[server]; own != nil {
		ways = append(ways[:len(ways):len(ways)], own)
	}
	for _, up := range ways {
		if c := up.live.Load(); c != nil && c.incarnation == incarnation {
			return up
		}
	}
	return nil
}

func (g *Gateway) way(ctx context.Context, server string) (*Upstream, error) {
	for {
		g.mu.Lock()
		links, changed := g.links[server], g.changed
		if g.closed {
			g.mu.Unlock()
			return nil, ErrClosed
		}
		if len(links) > 0 {
			g.mu.Unlock()
			return links[len(links)-1], nil
		}
		wait := g.cfg.ClientWait - time.Since(g.begun)
		if wait <= 0 {
			defer g.mu.Unlock()
			return g.ownLocked(server)
		}
		g.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		}
		t.Stop()
	}
}

func (g *Gateway) ownLocked(server string) (*Upstream, error) {
	if up := g.own[server]; up != nil {
		return up, nil
	}
	for _, srv := range g.cfg.Servers {
		if srv.Name == server {
			srv.ClientWait = -1
			g.own[server] = g.upstream(srv)
			return g.own[server], nil
		}
	}
	return nil, fmt.Errorf("mcp: there is no server %q", server)
}

func (g *Gateway) lostProcess(server, incarnation string) {
	ctx, cancel := context.WithTimeout(context.Background(), lostLimit)
	defer cancel()
	for _, tenant := range append([]string{g.cfg.Tenant}, g.cfg.Tenants...) {
		if err := g.cfg.Guard.LostProcess(ctx, tenant, server, incarnation); err != nil {
			g.cfg.Log.Error().Err(err).Str("incarnation", incarnation).Msg("cannot record what was lost with the upstream's process")
		}
	}
}

// Close ends the conversations of our own. Those of clients end with their
// sessions.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	g.changedLocked()
	own := g.own
	g.own = nil
	g.mu.Unlock()
	for _, up := range own {
		up.Close()
	}
}

// Serve speaks with one client over stdio until its input ends or ctx does. Then
// nothing new is taken, and running calls are waited for, Drain at most; then the
// servers are ended, and what still runs is an unknown outcome, which its asker
// is told. A broken out, or one that nobody reads, loses answers and no outcome,
// and does not keep Serve. The error is nil after an orderly end, or a
// *StartError.
func (g *Gateway) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := newSession(g, g.linkAll(), lineSink{&lineWriter{w: out}})
	var err error
	if len(s.ups) == 1 {
		err = s.ups[0].Start(ctx)
	} else {
		for _, up := range s.ups {
			go func() { _ = up.Start(ctx) }() // whatever is wrong with one, the others serve
		}
	}
	if start, ok := errors.AsType[*StartError](err); ok {
		g.unlink(s.ups[0])
		return start
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.read(in)
	}()
	err = s.watch(ctx, ended)
	s.drain(err)
	return err
}

// watch waits for the end of the input, of ctx, or of all hope.
func (s *session) watch(ctx context.Context, ended <-chan struct{}) error {
	for {
		changed, err := s.ups[0].failure()
		if err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
