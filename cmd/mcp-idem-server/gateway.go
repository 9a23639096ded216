package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/rs/zerolog/diode"
	"github.com/spf13/cobra"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/mcp"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// gateway guards servers and speaks stdio.
func (p *program) gateway(c *cobra.Command, args []string) error {
	none := func(*config.Config) error { return nil }
	return p.withGateway(c, args, 0, none, func(ctx context.Context, h *house, _ *config.Config, _ idem.Store) error {
		return h.gateway.Serve(ctx, p.in, p.out)
	})
}

// withGateway opens the ledger and makes a gateway on it, for as long as f
// serves clients. clientWait is mcp.Config's. check may refuse the configuration
// before anything is touched.
func (p *program) withGateway(c *cobra.Command, args []string, clientWait time.Duration, check func(*config.Config) error,
	f func(ctx context.Context, h *house, cfg *config.Config, st idem.Store) error,
) error {
	cfg, err := p.gatewayConfig(c, args)
	if err != nil {
		return err
	}
	if len(cfg.Upstreams) == 0 {
		return usagef("%s: mcpServers names no server to guard", cfg.File)
	}
	if err := check(cfg); err != nil {
		return err
	}
	at, err := p.ledgerPlace(cfg.Ledger)
	if err != nil {
		return err
	}
	log, err := p.logger()
	if err != nil {
		return err
	}
	st, err := p.joinStore(c.Context(), at, cfg.Lease)
	if err != nil {
		return err
	}
	defer st.Close()
	if pg, ok := st.(*pgstore.Store); ok && pg.Made() {
		log.Warn().Str("ledger", at.String()).Msg("there was no ledger in this database: a new one was made, which knows of no effect")
	} else {
		log.Info().Str("ledger", at.String()).Msg("ledger")
	}
	if at.Kind == config.LedgerPostgres && cfg.File == "" && p.flags.name == "" {
		log.Warn().Msg("no --name is given: a gateway on another host, or in another directory, has another name and does not share these operations")
	}
	// It may hold a password, and the guarded server inherits the environment.
	if err := os.Unsetenv("MCP_IDEM_LEDGER"); err != nil {
		return err
	}
	h, err := p.house(cfg, st, log, clientWait)
	if err != nil {
		return err
	}
	stop := h.recover(c.Context())
	err = f(c.Context(), h, cfg, st)
	stop()
	h.close()
	return err
}

// gatewayConfig is the configuration of a file, or of the command after --.
func (p *program) gatewayConfig(c *cobra.Command, args []string) (*config.Config, error) {
	dash := c.ArgsLenAtDash()
	switch {
	case dash > 0 || (dash < 0 && len(args) > 0):
		return nil, usagef("unknown command %q; a server to guard comes after --", args[0])
	case dash == 0 && len(args) == 0:
		return nil, usagef("there is no command after --")
	case dash == 0 && p.flags.config != "" && c.Flags().Changed("config"):
		return nil, usagef("give either --config or a command after --, not both")
	case dash == 0:
		if p.flags.config != "" {
			fmt.Fprintln(p.err, "mcp-idem-server: MCP_IDEM_CONFIG is ignored: a command is given after --")
		}
		return p.commandConfig(args)
	case p.flags.config == "":
		return nil, usagef("what is to be guarded? Give a command after --, or --config FILE")
	case p.flags.name != "" || p.flags.trustHints:
		return nil, usagef("--name and --trust-hints go with a command after --; in a configuration they are mcpServers and trust_hints")
	}
	return p.loadConfig()
}

func (p *program) commandConfig(args []string) (*config.Config, error) {
	name := p.flags.name
	if name == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		name = config.NameFor(args[0], args[1:], dir)
	}
	return config.ForCommand(config.Upstream{Name: name, Command: args[0], Args: args[1:]}, p.flags.trustHints)
}

func (p *program) loadConfig() (*config.Config, error) {
	cfg, err := config.Load(p.flags.config, p.env)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, usageError{err}
	}
	return cfg, err
}

func (p *program) logger() (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(p.flags.logLevel)
	if err != nil || p.flags.logLevel == "" {
		return zerolog.Nop(), usagef("--log-level %q: want debug, info, warn or error", p.flags.logLevel)
	}
	w := zerolog.ConsoleWriter{Out: p.logSink(), NoColor: true, TimeFormat: time.RFC3339}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

// logLines is how many log lines wait for a reader of standard error at most;
// then the oldest are dropped. A log never holds up an answer, or the end.
const logLines = 1024

func (p *program) logSink() io.Writer {
	if p.sink == nil {
		sink := diode.NewWriter(struct{ io.Writer }{p.err}, logLines, 0, func(missed int) {
			fmt.Fprintf(p.err, "mcp-idem-server: %d log lines were dropped: nobody reads standard error fast enough\n", missed)
		})
		p.sink = &sink
	}
	return p.sink
}

// logFlush is how long the last log lines may take to be read at the end.
const logFlush = 500 * time.Millisecond

func (p *program) flushLog() {
	if p.sink == nil {
		return
	}
	done := make(chan struct{})
	go func() { _ = p.sink.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(logFlush):
	}
}

func (p *program) identity(cfg *config.Config) mcp.Identity {
	texts := func(ss []config.Source) (out []string) {
		for _, s := range ss {
			out = append(out, s.String())
		}
		return out
	}
	i := cfg.Identity
	return mcp.Identity{Task: texts(i.Task), Run: texts(i.Run), Step: texts(i.Step), Key: texts(i.Key), GenericKey: texts(i.GenericKey),
		Alias: texts(i.Alias), NewRunPerConnection: i.NewRun, FlagTask: p.flags.task, FlagRun: p.flags.run}
}

func (p *program) tenant(cfg *config.Config) string {
	if p.flags.tenant != "" {
		return p.flags.tenant
	}
	return cfg.Tenant
}

// house is a guard with all that belongs to it.
type house struct {
	guard   *idem.Guard
	gateway *mcp.Gateway
	control *mcp.Control // nil: agents are not offered it
	set     *policy.Set
	tenant  string
	tenants []string // further ones, of clients over HTTP
	servers []string
	log     zerolog.Logger
}

// house wires the parts. clientWait is mcp.Config's.
func (p *program) house(cfg *config.Config, st idem.Store, log zerolog.Logger, clientWait time.Duration) (*house, error) {
	h := &house{tenant: p.tenant(cfg), log: log, servers: []string{config.OutsideServer}}
	for _, u := range cfg.Upstreams {
		h.servers = append(h.servers, u.Name)
	}
	for _, b := range cfg.HTTP.Tokens {
		if b.Tenant != h.tenant && !slices.Contains(h.tenants, b.Tenant) {
			h.tenants = append(h.tenants, b.Tenant)
		}
	}
	var err error
	h.set, err = cfg.Set(func(ctx context.Context, q idem.Lookup, tool string, args []byte) ([]byte, error) {
		return h.gateway.Call(ctx, q.Record.Server(), q.Record.Incarnation, tool, args)
	})
	if err != nil {
		return nil, err
	}
	system, err := proc.New()
	if err != nil {
		return nil, err
	}
	h.guard, err = idem.New(idem.Config{Store: st, Policy: h.set, Owner: system.Self(), Processes: system, Observer: h, ClientTimeout: cfg.ClientTimeout, Command: p.remedy(cfg)})
	if err != nil {
		return nil, err
	}
	gw := mcp.Config{Guard: h.guard, Servers: servers(cfg, log), Policy: mcp.PolicyOf(h.set), Identity: p.identity(cfg), Tenant: h.tenant, Tenants: h.tenants,
		Prefix: cfg.Prefixed(), Version: programVersion(), Drain: cfg.Drain, ClientWait: clientWait, Log: log}
	if cfg.ControlTools && !p.flags.noControlTools {
		h.control = mcp.NewControl(mcp.ControlConfig{Guard: h.guard, Store: st})
		gw.Control = h.control
	}
	h.gateway, err = mcp.NewGateway(gw)
	return h, err
}

func servers(cfg *config.Config, log zerolog.Logger) (out []mcp.Server) {
	for _, u := range cfg.Upstreams {
		srv := mcp.Server{Name: u.Name, Command: u.Command, Args: u.Args, Env: u.Env, Dir: u.Dir, URL: u.URL, Headers: u.Headers, SSE: u.Type == config.TransportSSE,
			TrustHints: slices.Contains(cfg.TrustHints, u.Name), Log: log}
		if u.Allow != nil || u.Deny != nil { // else lists of tools need not be read
			srv.Allows = u.Allows
		}
		out = append(out, srv)
	}
	return out
}

// remedy is how an operator calls this program on this ledger.
func (p *program) remedy(cfg *config.Config) string {
	switch {
	case p.flags.ledger != "":
		at, _ := config.ParseLedger("", p.flags.ledger) // it was read before
		return "mcp-idem-server --ledger " + shell(at.String())
	case cfg.File != "":
		return "mcp-idem-server --config " + cfg.File
	}
	return "mcp-idem-server"
}

// recover runs the recoverer until stop is called.
func (h *house) recover(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, tenant := range append([]string{h.tenant}, h.tenants...) {
		wg.Go(func() { _ = h.guard.Recover(ctx, tenant, h.servers) })
	}
	return func() { cancel(); wg.Wait() }
}

// recordGrace is how long the outcomes of attempts whose upstream was ended may
// take to be written down.
const recordGrace = 5 * time.Second

func (h *house) close() {
	ctx, cancel := context.WithTimeout(context.Background(), recordGrace)
	defer cancel()
	if h.control != nil {
		h.control.Close()
	}
	if err := h.guard.Close(ctx); err != nil {
		h.log.Warn().Err(err).Msg("some outcomes are not recorded; they are reconciled at the next start")
	}
	h.gateway.Close()
}

// Observe implements idem.Observer: what happens goes into the log.
func (h *house) Observe(o idem.Observation) {
	level := zerolog.DebugLevel
	moved := o.What == "transition" && o.From != o.Record.State
	switch {
	case o.What == "unrecorded" || o.What == "recover_failed":
		level = zerolog.ErrorLevel
	case o.What == "refused" && errors.Is(o.Err, context.Canceled): // whoever asked has left
	case o.Err != nil || (moved && o.Record.State == idem.StateNeedsReview):
		level = zerolog.WarnLevel
	case moved && o.Record.State == idem.StateUnknown:
		level = zerolog.InfoLevel
	}
	e := h.log.WithLevel(level)
	if level < h.log.GetLevel() {
		return
	}
	if o.Op != (idem.ID{}) {
		e = e.Str("op", o.Op.String())
	}
	if r := o.Record; r != nil {
		e = e.Str("tool", r.Scope.Tool).Str("state", string(r.State))
		if r.Reason != "" {
			e = e.Str("reason", string(r.Reason))
		}
	}
	if o.Code != "" {
		e = e.Str("code", string(o.Code))
	}
	e.Err(o.Err).Msg(message(o))
}

func message(o idem.Observation) string {
	switch o.What {
	case "transition":
		return fmt.Sprintf("operation moved from %s", orNew(o.From))
	case "refused":
		return "ask refused"
	case "query_failed":
		return "the outside system could not be asked"
	case "unrecorded":
		return "the effect happened and cannot be written down yet"
	case "late_report":
		return "an attempt's end came after the record had expired"
	}
	return o.What
}

func orNew(s idem.State) string {
	if s == "" {
		return "nothing"
	}
	return string(s)
}
