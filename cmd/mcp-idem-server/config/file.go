package config

import "reflect"

// The comments of these fields are the descriptions in the file's JSON Schema.

// File is the configuration file.
type File struct {
	// Where an editor finds the schema of this file.
	Schema string `json:"$schema,omitempty"`
	// Where the ledger is: a path, bolt:///path or postgres://user@host/database. Absent: the default place.
	Ledger string `json:"ledger,omitempty" jsonschema:"minLength=1"`
	// Whose operations these are.
	Tenant string `json:"tenant,omitempty" jsonschema:"default=default,minLength=1"`
	// The servers to guard by their names, as MCP clients have them.
	MCPServers map[string]Server `json:"mcpServers,omitempty"`
	// Where the identity of a call is read from.
	Identity Identity `json:"identity,omitempty"`
	// What holds for which tool; the first entry that matches decides.
	Policies []Policy `json:"policies,omitempty"`
	// The servers whose readOnlyHint is believed.
	TrustHints []string `json:"trust_hints,omitempty"`
	// How tools are named to clients. auto: as the server names them for one server, server__tool for several.
	Names string `json:"names,omitempty" jsonschema:"enum=auto,enum=prefix,enum=plain,default=auto"`
	// How clients are served over HTTP (mcp-idem-server serve).
	HTTP HTTP `json:"http,omitempty"`
	// Whether agents are offered the control tools (idem_task, idem_status and so on).
	ControlTools *bool `json:"control_tools,omitempty" jsonschema:"default=true"`
	// After so long without a sign of life a claim is not trusted any more; at least 1s.
	Lease *Duration `json:"lease,omitempty" jsonschema:"default=30s"`
	// An answer later than that counts as not delivered.
	ClientTimeout *Duration `json:"client_timeout,omitempty" jsonschema:"default=55s"`
	// How long running calls may take when the client has gone.
	Drain *Duration `json:"drain,omitempty" jsonschema:"default=10s"`
	// A larger result is passed on, but not kept: a replay says so.
	ResultLimit *Size `json:"result_limit,omitempty" jsonschema:"default=4MiB"`
	// How long after it the same operation may be asked for; the retentions must not be shorter.
	ReplayWindow *Duration `json:"replay_window,omitempty" jsonschema:"default=24h"`
	// How long outcomes are kept; then keys and steps leave a tombstone.
	Retention *Duration `json:"retention,omitempty" jsonschema:"default=720h"`
	// How long delivered outcomes without step or key are kept.
	OccurrenceRetention *Duration `json:"occurrence_retention,omitempty" jsonschema:"default=48h"`
}

// Server is an upstream MCP server: a command that is started, or a URL.
type Server struct {
	// How it is spoken to: stdio as a child process, http (streamable HTTP) or sse at a URL.
	Type string `json:"type,omitempty" jsonschema:"enum=stdio,enum=http,enum=streamable-http,enum=streamableHttp,enum=sse"`
	// The program to start.
	Command string `json:"command,omitempty" jsonschema:"oneof_required=command,minLength=1"`
	// The arguments of the program.
	Args []string `json:"args,omitempty"`
	// Variables for the program, beside the environment that it inherits.
	Env map[string]string `json:"env,omitempty"`
	// The working directory of the program.
	Cwd string `json:"cwd,omitempty" jsonschema:"minLength=1"`
	// Where the server is.
	URL string `json:"url,omitempty" jsonschema:"oneof_required=url,minLength=1"`
	// Headers of every request to the URL.
	Headers map[string]string `json:"headers,omitempty"`
	// Globs over the names of its tools; the others are neither shown nor called.
	Allow []string `json:"allow,omitempty" jsonschema:"minItems=1"`
	// Globs over the names of its tools that are neither shown nor called; it goes before allow.
	Deny []string `json:"deny,omitempty"`
	// As if it were not in the file.
	Disabled bool `json:"disabled,omitempty"`
}

// HTTP is how clients are served over HTTP.
type HTTP struct {
	// The address to listen at, HOST:PORT.
	Listen string `json:"listen,omitempty" jsonschema:"default=127.0.0.1:8787,pattern=:[0-9]+$|[$][{]"`
	// The bearer tokens that let a client in. Absent: no token is asked for.
	Tokens []Token `json:"tokens,omitempty" jsonschema:"minItems=1"`
	// Origins that browsers may call from, beside those of this machine: scheme://host or scheme://host:port.
	AllowedOrigins []string `json:"allowed_origins,omitempty"`
	// Names of this server in the Host header, beside loopback and the address that it listens at.
	AllowedHosts []string `json:"allowed_hosts,omitempty"`
	// The largest request.
	MaxBody *Size `json:"max_body,omitempty" jsonschema:"default=16MiB"`
	// After so long without a request a session is over.
	SessionIdle *Duration `json:"session_idle,omitempty" jsonschema:"default=30m"`
	// The file of the certificate, PEM.
	TLSCert string `json:"tls_cert,omitempty" jsonschema:"minLength=1"`
	// The file of the certificate's key, PEM.
	TLSKey string `json:"tls_key,omitempty" jsonschema:"minLength=1"`
}

// Token is a bearer token, by its hash, and who holds it.
type Token struct {
	// The SHA-256 of the token in hex; the token itself is in no file.
	SHA256 string `json:"sha256" jsonschema:"pattern=^[0-9a-fA-F]{64}$|[$][{]"`
	// Whose operations its bearer's are. Absent: the top one.
	Tenant string `json:"tenant,omitempty" jsonschema:"minLength=1"`
	// Who holds it. Tokens of one tenant and name belong to one bearer. Absent: the first 8 digits of the hash.
	Name string `json:"name,omitempty" jsonschema:"minLength=1"`
}

// Identity is where the identity of a call is read from; the first source that has a value counts.
type Identity struct {
	// The agent's task.
	Task []string `json:"task,omitempty" jsonschema:"pattern=^(_meta|params|header|env)[.].|^flag$|[$][{]"`
	// The run of the agent; with a new one it starts over.
	Run []string `json:"run,omitempty" jsonschema:"pattern=^(_meta|params|header|env)[.].|^flag$|[$][{]"`
	// The step of the task.
	Step []string `json:"step,omitempty" jsonschema:"pattern=^(_meta|params|header)[.].|[$][{]"`
	// The key that the host gives to the call.
	Key []string `json:"key,omitempty" jsonschema:"pattern=^(_meta|params|header)[.].|[$][{]"`
	// A key that a client or a library between makes.
	GenericKey []string `json:"generic_key,omitempty" jsonschema:"pattern=^(_meta|params|header)[.].|[$][{]"`
	// The client's own id of the call, which its resend has too.
	Alias []string `json:"alias,omitempty" jsonschema:"pattern=^(_meta|params|header)[.].|[$][{]"`
	// When a new run of the agent begins: explicit, by a run id only; connection, with each connection too.
	NewRun string `json:"new_run,omitempty" jsonschema:"enum=explicit,enum=connection,default=explicit"`
}

// Policy is what holds for the tools that it matches.
type Policy struct {
	// A glob over server/tool: * within a name, ** across.
	Match string `json:"match" jsonschema:"minLength=1"`
	// What the tool does: write is guarded, read passes by the ledger, idempotent may be sent again on an unknown outcome. Absent: write, or read where a trusted server says so.
	Effect string `json:"effect,omitempty" jsonschema:"enum=write,enum=read,enum=idempotent"`
	// The name of the operation, where several policies share a tool.
	Operation string `json:"operation,omitempty" jsonschema:"default=call,minLength=1"`
	// The business key: jq over the arguments.
	Key string `json:"key,omitempty" jsonschema:"minLength=1"`
	// With key: the paths in the arguments that must stay equal. Absent: all but ignore.
	Bind []string `json:"bind,omitempty" jsonschema:"minItems=1"`
	// Paths in the arguments that are left out of the request hash.
	Ignore []string `json:"ignore,omitempty"`
	// The external id: jq over the result.
	ID string `json:"id,omitempty" jsonschema:"minLength=1"`
	// Where the upstream gets the key.
	Forward *Forward `json:"forward,omitempty"`
	// Frees the caller; the attempt goes on and its answer counts. Absent: none.
	Timeout *Duration `json:"timeout,omitempty"`
	// How long a call waits for somebody else's attempt, a query or a retry.
	Wait *Duration `json:"wait,omitempty" jsonschema:"default=20s"`
	// What a cancellation does: the attempt goes on alone, or the upstream is told.
	Cancel string `json:"cancel,omitempty" jsonschema:"enum=detach,enum=forward,default=detach"`
	// What the same call without step or key is, once its outcome was delivered.
	Repeat string `json:"repeat,omitempty" jsonschema:"enum=occurrence,enum=each_call,enum=replay,enum=refuse,default=occurrence"`
	// When what surely was not applied is attempted again.
	Retry *Retry `json:"retry,omitempty"`
	// Rules before the built-in table; the first whose condition holds decides.
	Classify []Classify `json:"classify,omitempty"`
	// How an unknown outcome is settled. Absent: by a person.
	Reconcile *Reconcile `json:"reconcile,omitempty"`
	// process: what the tool makes ends with the server's process.
	State string `json:"state,omitempty" jsonschema:"enum=durable,enum=process,default=durable"`
	// How long a proven failure is replayed before it may be attempted anew.
	FailureTTL *Duration `json:"failure_ttl,omitempty" jsonschema:"default=10m"`
	// How long outcomes are kept. Absent: the top one.
	Retention *Duration `json:"retention,omitempty"`
}

// Forward is where the upstream gets the key.
type Forward struct {
	// The argument that carries it; a value of the model's there is replaced.
	Argument string `json:"argument,omitempty" jsonschema:"anyof_required=argument,pattern=^[A-Za-z_][A-Za-z0-9_-]*$|[$][{]"`
	// The member of the request's _meta that carries it.
	Meta string `json:"meta,omitempty" jsonschema:"anyof_required=meta,minLength=1"`
	// The HTTP header that carries it; for servers at a URL.
	Header string `json:"header,omitempty" jsonschema:"anyof_required=header,minLength=1"`
}

// Retry is a schedule of exponential back-off with full jitter.
type Retry struct {
	// Attempts in all, the first one included.
	MaxAttempts *int `json:"max_attempts,omitempty" jsonschema:"default=3,minimum=1"`
	// The longest first wait; it doubles.
	Initial *Duration `json:"initial,omitempty" jsonschema:"default=200ms"`
	// The longest wait.
	Max *Duration `json:"max,omitempty" jsonschema:"default=10s"`
	// From the first attempt until no other begins.
	MaxElapsed *Duration `json:"max_elapsed,omitempty" jsonschema:"default=2m"`
}

// Classify is a rule that overrules what the end of an attempt says.
type Classify struct {
	// A condition: jq over the result, with http_status, rpc_code and error where they exist.
	If string `json:"if" jsonschema:"minLength=1"`
	// What the end of the attempt says about the effect.
	Class string `json:"class" jsonschema:"enum=success,enum=not_sent,enum=throttled,enum=rejected,enum=exists,enum=ambiguous,enum=reported"`
	// Your word that bytes which may have left had no effect.
	Trust bool `json:"trust,omitempty"`
}

// Reconcile is how an unknown outcome is asked for.
type Reconcile struct {
	// A tool of the same server that only reads.
	Tool string `json:"tool" jsonschema:"minLength=1"`
	// Its arguments: jq, with $key, $business_key, $args, $task, $step, $external_id.
	Arguments string `json:"arguments,omitempty" jsonschema:"minLength=1"`
	// The ids of what is there: jq over its result. None: absent; more than one: a duplicate.
	Found string `json:"found" jsonschema:"minLength=1"`
	// What a replay returns: jq over its result. Absent: the query's own result.
	Result string `json:"result,omitempty" jsonschema:"minLength=1"`
	// Whether it is asked before the call too, and only what is new counts.
	Baseline bool `json:"baseline,omitempty"`
	// From the attempt's end until "not found" is believed; over HTTP it has to cover the tool's longest run. Absent: 5s, over HTTP 60s or the timeout.
	Settle *Duration `json:"settle,omitempty"`
	// How often it is asked.
	Every *Duration `json:"every,omitempty" jsonschema:"default=5s"`
	// After so long a person is asked.
	GiveUp *Duration `json:"give_up,omitempty" jsonschema:"default=10m"`
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
