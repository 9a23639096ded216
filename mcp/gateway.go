package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
)

// Config says what a Gateway stands between.
type Config struct {
	Guard    Guard     // required
	Upstream *Upstream // required
	Policy   Policy    // required
	Identity Identity
	Tenant   string // of every ask; empty: default

	// TrustHints: this upstream's readOnlyHint is believed where the policy is
	// silent (trust_hints).
	TrustHints bool
	// Drain is how long running calls are waited for when the client has gone.
	// 0: 10 s.
	Drain time.Duration
	Log   zerolog.Logger
}

// Gateway serves clients in front of one upstream.
type Gateway struct {
	cfg      Config
	server   string
	identity *identity
}

// lostLimit bounds how long the guard may take to write down what was lost with
// a process.
const lostLimit = 10 * time.Second

// NewGateway checks the configuration and returns a Gateway. It makes the
// upstream tell the guard of each process that has ended; nothing may have been
// started on the upstream yet.
func NewGateway(cfg Config) (*Gateway, error) {
	switch {
	case cfg.Guard == nil:
		return nil, errors.New("mcp: Config.Guard is missing")
	case cfg.Upstream == nil:
		return nil, errors.New("mcp: Config.Upstream is missing")
	case cfg.Policy == nil:
		return nil, errors.New("mcp: Config.Policy is missing")
	case cfg.Drain < 0:
		return nil, fmt.Errorf("mcp: Config.Drain is negative: %s", cfg.Drain)
	}
	if cfg.Drain == 0 {
		cfg.Drain = 10 * time.Second
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "default"
	}
	id, err := compile(cfg.Identity)
	if err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, server: cfg.Upstream.cfg.Name, identity: id}
	if cfg.Upstream.cfg.OnExit == nil {
		cfg.Upstream.cfg.OnExit = g.lostProcess
	}
	return g, nil
}

func (g *Gateway) lostProcess(incarnation string) {
	ctx, cancel := context.WithTimeout(context.Background(), lostLimit)
	defer cancel()
	if err := g.cfg.Guard.LostProcess(ctx, g.cfg.Tenant, g.server, incarnation); err != nil {
		g.cfg.Log.Error().Err(err).Str("incarnation", incarnation).Msg("cannot record what was lost with the upstream's process")
	}
}

// Serve speaks with one client until its input ends or ctx does. Then nothing
// new is taken, and running calls are waited for, Drain at most; then the
// upstream is closed, and what still runs is an unknown outcome, which its asker
// is told. A broken out, or one that nobody reads, loses answers and no outcome,
// and does not keep Serve. The error is nil after an orderly end, or a
// *StartError.
func (g *Gateway) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	up := g.cfg.Upstream
	s := newSession(g, out)
	up.client.Store(s)
	err := up.Start(ctx)
	if start, ok := errors.AsType[*StartError](err); ok {
		return start
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.read(in)
	}()
	err = g.watch(ctx, ended)
	s.drain(err)
	return err
}

// watch waits for the end of the input, of ctx, or of all hope.
func (g *Gateway) watch(ctx context.Context, ended <-chan struct{}) error {
	for {
		changed, err := g.cfg.Upstream.failure()
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
