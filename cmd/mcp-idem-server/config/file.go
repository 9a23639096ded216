package config

import "reflect"

// File is the configuration file.
type File struct {
	Schema     string            `json:"$schema,omitempty"`
	Ledger     string            `json:"ledger,omitempty"`     // a path, bolt:// and a path, or postgres://
	Tenant     string            `json:"tenant,omitempty"`     // default: default
	MCPServers map[string]Server `json:"mcpServers,omitempty"` // as MCP clients have it
	Identity   Identity          `json:"identity,omitempty"`
	Policies   []Policy          `json:"policies,omitempty"` // the first match decides
	// TrustHints are the servers whose readOnlyHint is believed.
	TrustHints          []string  `json:"trust_hints,omitempty"`
	Names               string    `json:"names,omitempty"` // auto, prefix, plain
	HTTP                HTTP      `json:"http,omitempty"`
	ControlTools        *bool     `json:"control_tools,omitempty"` // default: true
	Lease               *Duration `json:"lease,omitempty"`
	ClientTimeout       *Duration `json:"client_timeout,omitempty"`
	Drain               *Duration `json:"drain,omitempty"`
	ResultLimit         *Size     `json:"result_limit,omitempty"`
	ReplayWindow        *Duration `json:"replay_window,omitempty"`
	Retention           *Duration `json:"retention,omitempty"`
	OccurrenceRetention *Duration `json:"occurrence_retention,omitempty"`
}

// Server is an upstream MCP server.
type Server struct {
	Type    string            `json:"type,omitempty"` // stdio, http (streamable-http, streamableHttp), sse
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Allow are globs over the names of its tools; the others are not there.
	Allow []string `json:"allow,omitempty"`
	// Deny are globs over the names of its tools; it goes before allow.
	Deny     []string `json:"deny,omitempty"`
	Disabled bool     `json:"disabled,omitempty"` // as if it were not in the file
}

// HTTP is how clients are served over HTTP.
type HTTP struct {
	Listen         string    `json:"listen,omitempty"` // HOST:PORT
	Tokens         []Token   `json:"tokens,omitempty"` // absent: no token is asked for
	AllowedOrigins []string  `json:"allowed_origins,omitempty"`
	AllowedHosts   []string  `json:"allowed_hosts,omitempty"`
	MaxBody        *Size     `json:"max_body,omitempty"`
	SessionIdle    *Duration `json:"session_idle,omitempty"`
	TLSCert        string    `json:"tls_cert,omitempty"` // a PEM file
	TLSKey         string    `json:"tls_key,omitempty"`  // a PEM file
}

// Token is a bearer token, by its hash.
type Token struct {
	SHA256 string `json:"sha256"`           // of the token, in hex
	Tenant string `json:"tenant,omitempty"` // default: the top one
	Name   string `json:"name,omitempty"`   // of its bearer
}

// Identity says where the identity of an ask is read from; the first source
// that has a value counts.
type Identity struct {
	Task       []string `json:"task,omitempty"`
	Run        []string `json:"run,omitempty"`
	Step       []string `json:"step,omitempty"`
	Key        []string `json:"key,omitempty"`
	GenericKey []string `json:"generic_key,omitempty"`
	Alias      []string `json:"alias,omitempty"`
	NewRun     string   `json:"new_run,omitempty"` // explicit, connection
}

// Policy says what holds for the tools that it matches.
type Policy struct {
	Match      string     `json:"match"`            // glob over server/tool
	Effect     string     `json:"effect,omitempty"` // write, read, idempotent
	Operation  string     `json:"operation,omitempty"`
	Key        string     `json:"key,omitempty"`    // jq over the arguments
	Bind       []string   `json:"bind,omitempty"`   // plain paths
	Ignore     []string   `json:"ignore,omitempty"` // plain paths
	ID         string     `json:"id,omitempty"`     // jq over a result
	Forward    *Forward   `json:"forward,omitempty"`
	Timeout    *Duration  `json:"timeout,omitempty"`
	Wait       *Duration  `json:"wait,omitempty"`
	Cancel     string     `json:"cancel,omitempty"` // detach, forward
	Repeat     string     `json:"repeat,omitempty"` // occurrence, each_call, replay, refuse
	Retry      *Retry     `json:"retry,omitempty"`
	Classify   []Classify `json:"classify,omitempty"`
	Reconcile  *Reconcile `json:"reconcile,omitempty"`
	State      string     `json:"state,omitempty"` // durable, process
	FailureTTL *Duration  `json:"failure_ttl,omitempty"`
	Retention  *Duration  `json:"retention,omitempty"`
}

// Forward says where the upstream gets the key.
type Forward struct {
	Argument string `json:"argument,omitempty"`
	Meta     string `json:"meta,omitempty"`
	Header   string `json:"header,omitempty"`
}

// Retry is a retry schedule.
type Retry struct {
	MaxAttempts *int      `json:"max_attempts,omitempty"`
	Initial     *Duration `json:"initial,omitempty"`
	Max         *Duration `json:"max,omitempty"`
	MaxElapsed  *Duration `json:"max_elapsed,omitempty"`
}

// Classify overrules what the end of an attempt says.
type Classify struct {
	If    string `json:"if"`
	Class string `json:"class"`
	Trust bool   `json:"trust,omitempty"`
}

// Reconcile says how an unknown outcome is asked for.
type Reconcile struct {
	Tool      string    `json:"tool"`
	Arguments string    `json:"arguments,omitempty"` // jq
	Found     string    `json:"found"`               // jq over the query's result
	Result    string    `json:"result,omitempty"`    // jq over the query's result
	Baseline  bool      `json:"baseline,omitempty"`
	Settle    *Duration `json:"settle,omitempty"`
	Every     *Duration `json:"every,omitempty"`
	GiveUp    *Duration `json:"give_up,omitempty"`
}

// laterFields are the fields that the format has and this version has not.
func laterFields(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[File]():
		return []string{"retry_budget"}
	case reflect.TypeFor[Policy]():
		return []string{"repeat_limit", "approve", "compensate", "reversible", "redact"}
	case reflect.TypeFor[Forward]():
		return []string{"enforced", "window"}
	}
	return nil
}
