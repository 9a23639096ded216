package config

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/reconcilers"
)

// Config is a checked configuration, every default filled in.
type Config struct {
	File          string // empty: none
	Ledger        Ledger // zero: the default place
	Tenant        string
	Upstreams     []Upstream
	Identity      Sources
	TrustHints    []string
	Names         Names
	HTTP          HTTPServer
	ControlTools  bool // agents are offered the control tools
	Lease         time.Duration
	ClientTimeout time.Duration
	Drain         time.Duration
	ReplayWindow  time.Duration

	retention, occurrenceRetention time.Duration
	resultLimit                    int64
	transports                     map[string]Transport // of every server in the file
	tools                          []policy.Tool
	queries                        []*reconcilers.Tool // of tools; nil: none
}

// DefaultLease is how long a claim holds without a heartbeat.
const DefaultLease = 30 * time.Second

// minLease is the shortest lease within which a claim and its heartbeats surely
// fit.
const minLease = time.Second

// Load reads and checks a file. getenv finds environment variables
// (os.LookupEnv). Mistakes in the file are an *Error.
func Load(path string, getenv func(string) (string, bool)) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(text, getenv)
	if bad, ok := errors.AsType[*Error](err); ok {
		bad.File = path
	}
	if err != nil {
		return nil, err
	}
	c.File = path
	return c, nil
}

// ForCommand is the configuration of one server without a file.
func ForCommand(up Upstream, trustHints bool) (*Config, error) {
	f := File{MCPServers: map[string]Server{up.Name: {Command: up.Command, Args: up.Args, Cwd: up.Dir}}}
	if trustHints {
		f.TrustHints = []string{up.Name}
	}
	return f.build()
}

func parse(text []byte, getenv func(string) (string, bool)) (*Config, error) {
	var f File
	if err := decode(text, &f, getenv); err != nil {
		return nil, err
	}
	return f.build()
}

// Check says what is wrong with a file whose texts are final: ${NAME} in them
// is only text.
func (f *File) Check() error {
	_, err := f.build()
	return err
}

// build checks the file and makes a Config of it.
func (f *File) build() (*Config, error) {
	c := &Config{Tenant: f.Tenant, TrustHints: f.TrustHints, ControlTools: f.ControlTools == nil || *f.ControlTools}
	if c.Tenant == "" {
		c.Tenant = "default"
	}
	for _, step := range []func(*File) error{c.times, c.place, c.servers, c.serve, c.identity, c.policies} {
		if err := step(f); err != nil {
			return nil, err
		}
	}
	_, err := c.Set(nil)
	return c, err
}

// times takes over durations and sizes, and checks the windows.
func (c *Config) times(f *File) error {
	for _, d := range []struct {
		name  string
		given *Duration
		into  *time.Duration
		def   time.Duration
	}{
		{"lease", f.Lease, &c.Lease, DefaultLease},
		{"client_timeout", f.ClientTimeout, &c.ClientTimeout, 55 * time.Second},
		{"replay_window", f.ReplayWindow, &c.ReplayWindow, 24 * time.Hour},
		{"retention", f.Retention, &c.retention, 720 * time.Hour},
		{"occurrence_retention", f.OccurrenceRetention, &c.occurrenceRetention, 48 * time.Hour},
	} {
		*d.into = d.given.or(d.def)
		if *d.into <= 0 {
			return fail(d.name, "must be more than 0s")
		}
	}
	if c.Lease < minLease {
		return fail("lease", "must be at least %s: a claim is given up a fifth of it before its end", minLease)
	}
	c.Drain = f.Drain.or(10 * time.Second)
	for _, d := range []struct {
		name  string
		given *Duration
		value *time.Duration
	}{{"retention", f.Retention, &c.retention}, {"occurrence_retention", f.OccurrenceRetention, &c.occurrenceRetention}} {
		if d.given == nil { // a default gives way, a given value is a mistake
			*d.value = max(*d.value, c.ReplayWindow)
		}
		if err := c.keepsLongEnough(d.name, *d.value); err != nil {
			return err
		}
	}
	c.resultLimit = 4 << 20
	if f.ResultLimit != nil {
		if c.resultLimit = int64(*f.ResultLimit); c.resultLimit == 0 {
			return fail("result_limit", "must be more than 0B")
		}
	}
	return nil
}

// keepsLongEnough: an outcome that is forgotten while asks for it may still
// come would let one of them run again.
func (c *Config) keepsLongEnough(path string, d time.Duration) error {
	if d < c.ReplayWindow {
		return fail(path, "%s is shorter than replay_window (%s), in which the same operation may still be asked for", d, c.ReplayWindow)
	}
	return nil
}

func (c *Config) place(f *File) (err error) {
	if f.Ledger != "" {
		c.Ledger, err = ParseLedger("ledger", f.Ledger)
	}
	return err
}

// Set makes the policies. call reaches tools of the upstreams, past the guard.
func (c *Config) Set(call reconcilers.Call) (*policy.Set, error) {
	cfg := policy.Config{Tools: slices.Clone(c.tools), TrustHints: c.TrustHints, Lease: c.Lease,
		Retention: c.retention, OccurrenceRetention: c.occurrenceRetention, ResultLimit: c.resultLimit}
	for _, u := range c.Upstreams {
		cfg.Servers = append(cfg.Servers, u.Name)
	}
	cfg.Servers = append(cfg.Servers, OutsideServer)
	for i, q := range c.queries {
		if q == nil {
			continue
		}
		asker, rules := *q, *cfg.Tools[i].Query
		asker.Call = call
		rules.Reconciler = &asker
		cfg.Tools[i].Query = &rules
	}
	set, err := policy.New(cfg)
	if err != nil {
		return nil, err
	}
	return set, c.queriesHaveNoEffect(set)
}

// queriesHaveNoEffect refuses a query with the very tool that it is to settle.
func (c *Config) queriesHaveNoEffect(set *policy.Set) error {
	for i, q := range c.queries {
		if q == nil {
			continue
		}
		for _, u := range c.Upstreams {
			if set.Tool(u.Name+"/"+q.Name) == set.Entry(i) {
				return fail(index("policies", i)+".reconcile.tool", "%q is guarded by this very policy: asking with it could have the effect again; name a tool that only reads, and give it a policy of its own before this one (effect: read)", q.Name)
			}
		}
	}
	return nil
}
