package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/mcp"
)

// serveFlags are those of serve alone.
type serveFlags struct {
	http, cert, key string
	origins, hosts  []string
	noAuth          bool
}

const (
	headerLimit = 10 * time.Second // for a client to send a request's headers
	idleLimit   = 2 * time.Minute  // of a kept connection
	partLimit   = 5 * time.Second  // for the last answers to go out
)

// serve speaks streamable HTTP.
func (p *program) serve() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{Use: "serve [flags] [-- COMMAND [ARGS…]]", Short: "Guard the servers of --config, or the one after --, and speak streamable HTTP at /mcp"}
	c.Flags().StringVar(&f.http, "http", "", "address to listen at (default: http.listen of the configuration, or "+config.DefaultListen+")")
	c.Flags().StringVar(&f.cert, "tls-cert", "", "PEM file of the certificate")
	c.Flags().StringVar(&f.key, "tls-key", "", "PEM file of its key")
	c.Flags().StringSliceVar(&f.origins, "allowed-origin", nil, "origin that browsers may call from, beside loopback")
	c.Flags().StringSliceVar(&f.hosts, "allowed-host", nil, "name by which clients may call this server, beside loopback")
	c.Flags().BoolVar(&f.noAuth, "insecure-no-auth", false, "listen beyond loopback without tokens")
	p.commandFlags(c)
	p.gatewayFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var at config.HTTPServer
		check := func(cfg *config.Config) (err error) {
			at, err = f.listenAt(cfg)
			return err
		}
		return p.withGateway(c, args, -1, check, func(ctx context.Context, h *house, cfg *config.Config, st idem.Store) error {
			return serveHTTP(ctx, h, cfg, st, at)
		})
	}
	return c
}

// listenAt is where, and how, clients are served.
func (f *serveFlags) listenAt(cfg *config.Config) (at config.HTTPServer, err error) {
	at = cfg.HTTP
	if f.http != "" {
		if err := config.CheckListen(f.http); err != nil {
			return at, usagef("--http: %v", err)
		}
		at.Listen = f.http
	}
	at.TLSCert, at.TLSKey = cmp.Or(f.cert, at.TLSCert), cmp.Or(f.key, at.TLSKey)
	if (at.TLSCert == "") != (at.TLSKey == "") {
		return at, usagef("--tls-cert and --tls-key go together")
	}
	for _, o := range f.origins {
		at.AllowedOrigins = append(at.AllowedOrigins, strings.ToLower(o))
	}
	for _, h := range f.hosts {
		at.AllowedHosts = append(at.AllowedHosts, strings.ToLower(h))
	}
	host, _, err := net.SplitHostPort(at.Listen)
	if err != nil {
		return at, usagef("--http: %v", err)
	}
	if ip := net.ParseIP(host); len(at.Tokens) == 0 && !f.noAuth && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return at, usagef("listening at %s would let everybody in who can reach it: give http.tokens in the configuration, listen at 127.0.0.1, or say --insecure-no-auth", at.Listen)
	} else if ip == nil && host != "" && host != "localhost" {
		at.AllowedHosts = append(at.AllowedHosts, strings.ToLower(host))
	} else if ip != nil && !ip.IsLoopback() && !ip.IsUnspecified() {
		at.AllowedHosts = append(at.AllowedHosts, ip.String())
	}
	return at, nil
}

func serveHTTP(ctx context.Context, h *house, cfg *config.Config, st idem.Store, at config.HTTPServer) error {
	listener, err := net.Listen("tcp", at.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	front := mcp.HTTPConfig{AllowedOrigins: at.AllowedOrigins, AllowedHosts: at.AllowedHosts, MaxBody: at.MaxBody, SessionIdle: at.SessionIdle}
	for _, b := range at.Tokens {
		front.Bearers = append(front.Bearers, mcp.Bearer{SHA256: b.SHA256, Tenant: b.Tenant, Name: b.Name})
	}
	clients := h.gateway.Front(front)
	var draining atomic.Bool
	mux := http.NewServeMux()
	mux.Handle("/mcp", clients)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { readiness(w, r, st, &draining) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit, ErrorLog: errorLog(h.log)}
	served := make(chan error, 1)
	scheme := "http"
	if at.TLSCert != "" {
		scheme = "https"
	}
	h.log.Info().Msgf("listening on %s://%s/mcp", scheme, listener.Addr())
	go func() {
		if at.TLSCert != "" {
			served <- srv.ServeTLS(listener, at.TLSCert, at.TLSKey)
			return
		}
		served <- srv.Serve(listener)
	}()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	draining.Store(true)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain+partLimit)
	defer cancel()
	clients.Close(closing)
	if serr := srv.Shutdown(closing); serr != nil {
		_ = srv.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// errorLog is where net/http says what goes wrong on a connection.
func errorLog(log zerolog.Logger) *stdlog.Logger {
	return stdlog.New(log.With().Str("level", "debug").Logger(), "", 0)
}

// readyLimit bounds how long the ledger may take to answer a readiness probe.
const readyLimit = 2 * time.Second

// readiness says whether calls would be guarded now.
func readiness(w http.ResponseWriter, r *http.Request, st idem.Store, draining *atomic.Bool) {
	ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
	defer cancel()
	if draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	if _, err := st.Load(ctx, idem.Ref{Kind: idem.KindOperation, ID: idem.ID{1}}); err != nil {
		http.Error(w, "the ledger does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
