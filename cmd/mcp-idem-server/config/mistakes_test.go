package config

import (
	"errors"
	"strings"
	"testing"
)

// mistake is a file with what its error has to name.
type mistake struct{ file, path, text string }

func policyWith(fields string) string {
	return `{"policies":[{"match":"tickets/create_ticket","forward":{"argument":"ref"},` + fields + `}]}`
}

func reconcileWith(fields string) string {
	return policyWith(`"reconcile":{"tool":"search","found":".x",` + fields + `}`)
}

const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func serverWith(fields string) string { return `{"mcpServers":{"a":{` + fields + `}}}` }

func httpWith(fields string) string { return `{"http":{` + fields + `}}` }

func overHTTP(fields string) string {
	return `{"mcpServers":{"a":{"url":"http://h"}},"policies":[{"match":"a/b",` + fields + `}]}`
}

func TestMistakes(t *testing.T) {
	for _, m := range []mistake{
		// Syntax and types.
		{`{"tenant":"a"`, ``, `line`}, {`{"tenant":"a" "lease":"1s"}`, ``, `line`}, {``, ``, ``}, {`[]`, ``, `an object, not a list`},
		{`{"tenant":7}`, `tenant`, `a string, not a number`}, {`{"tenant":null}`, `tenant`, `not null`}, {`{"policies":{}}`, `policies`, `a list, not an object`},
		{`{"mcpServers":[]}`, `mcpServers`, `an object, not a list`}, {`{"mcpServers":{"a":{"command":"x","args":[1]}}}`, `mcpServers.a.args[0]`, `a string`},
		{`{"mcpServers":{"a b":{"args":true}}}`, `mcpServers["a b"].args`, `a list, not true`}, {"{\"tenant\":\"\xff\"}", `tenant`, `invalid UTF-8`},
		{policyWith(`"classify":[{"if":".","class":"success","trust":"yes"}]`), `policies[0].classify[0].trust`, `true or false, not a string`},
		{policyWith(`"retry":{"max_attempts":1.5}`), `policies[0].retry.max_attempts`, `whole number`},
		{policyWith(`"retry":{"max_attempts":"3"}`), `policies[0].retry.max_attempts`, `whole number`},
		{`{"tenant":""}`, `tenant`, `empty`}, {`{"tenant":"${EMPTY}"}`, `tenant`, `empty`}, {policyWith(`"key":""`), `policies[0].key`, `empty`},
		// Unknown and twice.
		{`{"ledgr":"x"}`, `ledgr`, `did you mean ledger`}, {policyWith(`"recncile":{}`), `policies[0].recncile`, `did you mean reconcile`},
		{`{"zzzzzzzzzzzz":1}`, `zzzzzzzzzzzz`, `Allowed here: $schema, ledger, tenant`}, {reconcileWith(`"settled":"1s"`), `policies[0].reconcile.settled`, `settle`},
		{`{"mcpServers":{"a":{"command":"x","enabled":true}}}`, `mcpServers.a.enabled`, `did you mean disabled? Allowed here: type, command`},
		{`{"tenant":"a","tenant":"b"}`, `tenant`, `twice`}, {`{"mcpServers":{"a":{"command":"x"},"\u0061":{"command":"y"}}}`, `mcpServers.a`, `twice`},
		{policyWith(`"wait":"1s","wait":"2s"`), `policies[0].wait`, `twice`},
		// Variables.
		{`{"tenant":"x${NOPE_1}y"}`, `tenant`, `NOPE_1`}, {`{"mcpServers":{"a":{"command":"x","env":{"T":"${NOPE}"}}}}`, `mcpServers.a.env.T`, `NOPE`},
		{`{"lease":"${NOPE}"}`, `lease`, `NOPE`}, {policyWith(`"ignore":["${NOPE}"]`), `policies[0].ignore[0]`, `NOPE`},
		// Durations and sizes.
		{policyWith(`"timeout":"30 parsecs"`), `policies[0].timeout`, `"30s"`}, {`{"lease":30}`, `lease`, `a duration like "30s", not a number`}, {`{"lease":"30"}`, `lease`, `no duration`},
		{`{"lease":"-1s"}`, `lease`, `negative`}, {`{"lease":"0s"}`, `lease`, `more than 0s`}, {`{"lease":"1ms"}`, `lease`, `at least 1s`}, {`{"client_timeout":"0s"}`, `client_timeout`, `more than 0s`},
		{`{"replay_window":"0s"}`, `replay_window`, `more than 0s`}, {policyWith(`"timeout":"0s"`), `policies[0].timeout`, `more than 0s`},
		{`{"result_limit":"4 MiB"}`, `result_limit`, `4MiB`}, {`{"result_limit":4}`, `result_limit`, `a size`}, {`{"result_limit":"4"}`, `result_limit`, `4MiB`},
		{`{"result_limit":"9999999999999GiB"}`, `result_limit`, `4MiB`}, {`{"result_limit":"-1B"}`, `result_limit`, `4MiB`}, {`{"result_limit":"0B"}`, `result_limit`, `more than 0B`},
		// What is not built yet.
		{`{"retry_budget":{"tokens":1}}`, `retry_budget`, `retry_budget is not supported yet by this version`},
		{`{"ledger":"postgres:u@h/d"}`, `ledger`, `no //`}, {`{"ledger":"host=h dbname=d"}`, `ledger`, `postgres://user@host/database`},
		{`{"ledger":"redis://x"}`, `ledger`, `bolt:///path or postgres://user@host/database`}, {`{"ledger":"bolt://"}`, `ledger`, `no path`},
		{policyWith(`"repeat_limit":20`), `policies[0].repeat_limit`, `not supported yet`}, {policyWith(`"approve":false`), `policies[0].approve`, `not supported yet`},
		{policyWith(`"compensate":{}`), `policies[0].compensate`, `not supported yet`}, {policyWith(`"reversible":true`), `policies[0].reversible`, `not supported yet`},
		{policyWith(`"redact":[".x"]`), `policies[0].redact`, `not supported yet`},
		{`{"policies":[{"match":"a/b","forward":{"argument":"x","enforced":"native"}}]}`, `policies[0].forward.enforced`, `not supported yet`},
		{`{"policies":[{"match":"a/b","forward":{"argument":"x","window":"24h"}}]}`, `policies[0].forward.window`, `not supported yet`},
		// Servers and trust.
		{`{"mcpServers":{"a":{"args":["x"]}}}`, `mcpServers.a.command`, `missing`}, {`{"mcpServers":{"a/b":{"command":"x"}}}`, `mcpServers["a/b"]`, `slash`}, {`{"mcpServers":{"":{"command":"x"}}}`, `mcpServers[""]`, `name`},
		{`{"trust_hints":["a"]}`, `trust_hints[0]`, `mcpServers`},
		{serverWith(`"type":"pipe"`), `mcpServers.a.type`, `stdio, http (or streamable-http, streamableHttp), sse`}, {serverWith(`"type":"stdio"`), `mcpServers.a.command`, `missing`},
		{serverWith(`"type":"http"`), `mcpServers.a.url`, `missing`}, {serverWith(`"type":"http","command":"x","url":"http://h"`), `mcpServers.a.command`, `at a URL`},
		{serverWith(`"url":"http://h","env":{}`), `mcpServers.a.env`, `at a URL`}, {serverWith(`"type":"sse","url":"http://h","cwd":"/"`), `mcpServers.a.cwd`, `at a URL`},
		{serverWith(`"url":"http://h","args":[]`), `mcpServers.a.args`, `at a URL`},
		{serverWith(`"command":"x","headers":{}`), `mcpServers.a.headers`, `type: http`}, {serverWith(`"command":"x","url":"http://h"`), `mcpServers.a.url`, `type: http`},
		{serverWith(`"url":"h/mcp"`), `mcpServers.a.url`, `https://host/mcp`}, {serverWith(`"url":"ws://h"`), `mcpServers.a.url`, `https://host/mcp`}, {serverWith(`"url":"http://u:p@h"`), `mcpServers.a.url`, `Authorization`},
		{serverWith(`"url":"http://h/#x"`), `mcpServers.a.url`, `fragment`}, {serverWith(`"url":"http://h","headers":{"A b":"x"}`), `mcpServers.a.headers["A b"]`, `no name`},
		{serverWith(`"url":"http://h","headers":{"mcp-session-id":"x"}`), `mcpServers.a.headers.mcp-session-id`, `itself`}, {serverWith(`"url":"http://h","headers":{"X":"a\nb"}`), `mcpServers.a.headers.X`, `line break`},
		{serverWith(`"url":"http://h","headers":{"X-a":"1","x-A":"2"}`), `mcpServers.a.headers.x-A`, `twice`},
		{serverWith(`"command":"x","allow":[]`), `mcpServers.a.allow`, `disabled: true`}, {serverWith(`"command":"x","deny":["b",""]`), `mcpServers.a.deny[1]`, `empty`},
		{serverWith(`"command":"x","allow":["a/b"]`), `mcpServers.a.allow[0]`, `without the server's`}, {serverWith(`"command":"x","disabled":"yes"`), `mcpServers.a.disabled`, `true or false`},
		{serverWith(`"disabled":true`), `mcpServers.a.command`, `missing`},
		// Names.
		{`{"names":"short"}`, `names`, `auto, prefix, plain`}, {`{"mcpServers":{"a":{"command":"x"},"b.c":{"command":"y"}}}`, `mcpServers["b.c"]`, `names: plain`},
		{`{"mcpServers":{"b.c":{"command":"y"}},"names":"prefix"}`, `mcpServers["b.c"]`, `b.c__tool`},
		{`{"mcpServers":{"a":{"command":"x"},"a__b":{"command":"y"}}}`, `mcpServers.a__b`, `begins with a__`},
		// Serving over HTTP.
		{httpWith(`"listen":"localhost"`), `http.listen`, `127.0.0.1:8787`}, {httpWith(`"listen":"http://h:1"`), `http.listen`, `no address`}, {httpWith(`"listen":"h:99999"`), `http.listen`, `no address`},
		{httpWith(`"tokens":[]`), `http.tokens`, `nobody`}, {httpWith(`"tokens":[{"tenant":"a"}]`), `http.tokens[0].sha256`, `sha256sum`}, {httpWith(`"tokens":[{"sha256":"s3cret"}]`), `http.tokens[0].sha256`, `64 hex digits`},
		{httpWith(`"tokens":[{"sha256":"` + hash + `"},{"sha256":"` + strings.ToUpper(hash) + `"}]`), `http.tokens[1].sha256`, `twice`}, {httpWith(`"tokens":[{"token":"x"}]`), `http.tokens[0].token`, `sha256`},
		{httpWith(`"allowed_origins":["app.example"]`), `http.allowed_origins[0]`, `no origin`}, {httpWith(`"allowed_origins":["http://h/"]`), `http.allowed_origins[0]`, `without a path`}, {httpWith(`"allowed_origins":["*"]`), `http.allowed_origins[0]`, `no origin`},
		{httpWith(`"allowed_hosts":["http://h"]`), `http.allowed_hosts[0]`, `no host`}, {httpWith(`"allowed_hosts":[""]`), `http.allowed_hosts[0]`, `no host`},
		{httpWith(`"max_body":"0B"`), `http.max_body`, `more than 0B`}, {httpWith(`"session_idle":"0s"`), `http.session_idle`, `more than 0s`}, {httpWith(`"tls_cert":"c.pem"`), `http`, `go together`},
		// The key in a header.
		{overHTTP(`"forward":{"header":"X y"}`), `policies[0].forward.header`, `no name`}, {overHTTP(`"forward":{"header":"Content-Type"}`), `policies[0].forward.header`, `itself`},
		{`{"mcpServers":{"a":{"command":"x"}},"policies":[{"match":"a/b","forward":{"header":"X","argument":"y"}}]}`, `policies[0].forward.header`, `speaks stdio, as a does`},
		{`{"mcpServers":{"a":{"command":"x"},"b":{"url":"http://h"}},"policies":[{"match":"**","forward":{"header":"X"}}]}`, `policies[0].forward.header`, `as a does`},
		// Windows.
		{`{"retention":"1h","replay_window":"24h"}`, `retention`, `replay_window`}, {`{"retention":"1h"}`, `retention`, `replay_window`},
		{`{"occurrence_retention":"1h"}`, `occurrence_retention`, `replay_window`}, {policyWith(`"retention":"1h"`), `policies[0].retention`, `replay_window`},
		{`{"policies":[{"match":"a/b"},{"match":"a/c","retention":"0s"}]}`, `policies[1].retention`, `replay_window`},
		{overHTTP(`"timeout":"2m","forward":{"argument":"ref"},"reconcile":{"tool":"s","found":"$key","settle":"1m"}`), `policies[0].reconcile.settle`, `less than timeout (2m0s)`},
		// Identity.
		{`{"identity":{"task":["_meta"]}}`, `identity.task[0]`, `_meta.NAME`}, {`{"identity":{"task":["flag","args.task"]}}`, `identity.task[1]`, `flag`}, {`{"identity":{"task":["flag.x"]}}`, `identity.task[0]`, `no source`},
		{`{"identity":{"step":["flag"]}}`, `identity.step[0]`, `header.NAME`}, {`{"identity":{"key":["env.KEY"]}}`, `identity.key[0]`, `params.NAME`}, {`{"identity":{"alias":[""]}}`, `identity.alias[0]`, `_meta.NAME`},
		{`{"identity":{"new_run":"always"}}`, `identity.new_run`, `explicit, connection`},
		// Policies.
		{`{"policies":[{"effect":"read"}]}`, `policies[0].match`, `server/tool`}, {`{"policies":[{"match":"create_ticket"}]}`, `policies[0].match`, `server/tool`},
		{policyWith(`"effect":"delete"`), `policies[0].effect`, `write, read, idempotent`}, {policyWith(`"cancel":"kill"`), `policies[0].cancel`, `detach, forward`},
		{policyWith(`"repeat":"sometimes"`), `policies[0].repeat`, `occurrence, each_call, replay, refuse`}, {policyWith(`"state":"lost"`), `policies[0].state`, `durable, process`},
		{policyWith(`"key":".order_id |"`), `policies[0].key`, `bad jq`}, {policyWith(`"key":"$task"`), `policies[0].key`, `arguments alone`}, {policyWith(`"key":"now"`), `policies[0].key`, `now`},
		{policyWith(`"key":".ref"`), `policies[0].forward.argument`, `overwrite`}, {policyWith(`"id":".x |"`), `policies[0].id`, `bad jq`},
		{policyWith(`"bind":[".a"]`), `policies[0].bind`, `beside key`}, {policyWith(`"key":".a","bind":[]`), `policies[0].bind`, `empty`}, {policyWith(`"key":".a","bind":[".a[0]"]`), `policies[0].bind[0]`, `plain path`},
		{policyWith(`"ignore":[".a","reason"]`), `policies[0].ignore[1]`, `plain path`}, {policyWith(`"ignore":["."]`), `policies[0].ignore[0]`, `plain path`},
		{`{"policies":[{"match":"a/b","forward":{}}]}`, `policies[0].forward`, `argument, meta or`}, {`{"policies":[{"match":"a/b","forward":{"argument":".ref"}}]}`, `policies[0].forward.argument`, `plain name`},
		{`{"policies":[{"match":"a/b","forward":{"argument":"a.b"}}]}`, `policies[0].forward.argument`, `plain name`}, {`{"policies":[{"match":"a/b","forward":{"meta":"traceparent"}}]}`, `policies[0].forward.meta`, `idempotencyKey`},
		{policyWith(`"retry":{"max_attempts":0}`), `policies[0].retry.max_attempts`, `less than 1`}, {policyWith(`"retry":{"initial":"0s"}`), `policies[0].retry.initial`, `more than 0s`},
		{policyWith(`"retry":{"initial":"2s","max":"1s"}`), `policies[0].retry.initial`, `more than max`},
		{policyWith(`"classify":[{"if":"true","class":"maybe"}]`), `policies[0].classify[0].class`, `success, not_sent, throttled, rejected, exists, ambiguous, reported`},
		{policyWith(`"classify":[{"if":"true","class":"interim"}]`), `policies[0].classify[0].class`, `ambiguous`}, {policyWith(`"classify":[{"if":"true"}]`), `policies[0].classify[0].class`, `ambiguous`},
		{policyWith(`"classify":[{"class":"success"}]`), `policies[0].classify[0].if`, `missing`}, {policyWith(`"classify":[{"if":"(","class":"success"}]`), `policies[0].classify[0].if`, `bad jq`},
		{policyWith(`"classify":[{"if":".http_status == 503","class":"not_sent"}]`), `policies[0].classify[0].class`, `trust: true`},
		{`{"policies":[{"match":"a/b","effect":"read","key":".x"}]}`, `policies[0].key`, `read`}, {policyWith(`"effect":"read"`), `policies[0].forward`, `read`},
		{`{"policies":[{"match":"a/b","effect":"read","repeat":"replay"}]}`, `policies[0].repeat`, `read`},
		{`{"policies":[{"match":"a/b","effect":"read","reconcile":{"tool":"s","found":".","baseline":true}}]}`, `policies[0].reconcile`, `read`},
		// Reconciling.
		{policyWith(`"reconcile":{"found":".x","baseline":true}`), `policies[0].reconcile.tool`, `missing`}, {policyWith(`"reconcile":{"tool":"search","baseline":true}`), `policies[0].reconcile.found`, `missing`},
		{policyWith(`"reconcile":{"tool":"tickets/search","found":".x","baseline":true}`), `policies[0].reconcile.tool`, `without the server`},
		{reconcileWith(`"arguments":"{order_id: $args.order_id}"`), `policies[0].reconcile`, `baseline: true`}, {reconcileWith(`"arguments":"{ref: \"$key\"}"`), `policies[0].reconcile`, `baseline: true`},
		{reconcileWith(`"result":"."`), `policies[0].reconcile`, `baseline: true`},
		{reconcileWith(`"arguments":"{ref: $business_key}"`), `policies[0].reconcile`, `no key`}, {reconcileWith(`"arguments":"{ref: $kee}"`), `policies[0].reconcile.arguments`, `$key`},
		{`{"policies":[{"match":"a/b","reconcile":{"tool":"s","found":".x","arguments":"{r: $key}"}}]}`, `policies[0].reconcile`, `forward`},
		{reconcileWith(`"arguments":"{"`), `policies[0].reconcile.arguments`, `bad jq`}, {reconcileWith(`"baseline":true,"result":"|"`), `policies[0].reconcile.result`, `bad jq`},
		{policyWith(`"reconcile":{"tool":"s","found":"|","baseline":true}`), `policies[0].reconcile.found`, `bad jq`},
		{reconcileWith(`"arguments":"{r: $key}","every":"2m","give_up":"1m"`), `policies[0].reconcile.every`, `give_up`}, {reconcileWith(`"baseline":true,"every":"0s"`), `policies[0].reconcile.every`, `more than 0s`},
	} {
		_, err := parse([]byte(m.file), env)
		bad, ok := errors.AsType[*Error](err)
		if !ok || bad.Path != m.path || !strings.Contains(bad.Text, m.text) {
			t.Errorf("%s\n\tgives %v\n\twant  %s: …%s…", m.file, err, m.path, m.text)
		}
	}
}

// What is next to a mistake is none.
func TestAccepted(t *testing.T) {
	for _, file := range accepted() {
		if _, err := parse([]byte(file), env); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func accepted() []string {
	return []string{
		`{"policies":[]}`, `{"ledger":"rel/ledger.db"}`, `{"ledger":"postgresql://u@h/d?sslmode=verify-full"}`, `{"tenant":"$$ {x} $NOPE ${NOPE:-d}"}`, `{"mcpServers":{"a":{"command":"sh","args":["-c","echo $HOME"]}}}`,
		policyWith(`"retention":"24h"`), reconcileWith(`"arguments":"{r: $key}","every":"60s","give_up":"60s"`),
		policyWith(`"key":".order_id","reconcile":{"tool":"s","arguments":"{o: $business_key}","found":".x"}`),
		reconcileWith(`"arguments":"{o: $args.o}","baseline":true`), policyWith(`"reconcile":{"tool":"list","found":".items[] | select(.ref == $key) | .id"}`),
		serverWith(`"command":"x","disabled":true,"type":"stdio"`), `{"mcpServers":{"b.c":{"command":"y"},"d":{"command":"x","disabled":true}}}`,
		`{"mcpServers":{"b.c":{"command":"y"},"d":{"command":"x"}},"names":"plain"}`, `{"mcpServers":{"d":{"command":"x","disabled":true}},"trust_hints":["d"]}`,
		httpWith(`"listen":":0"`), httpWith(`"listen":"[::1]:80","allowed_origins":["chrome-extension://abc"],"allowed_hosts":["h:1"]`),
		`{"policies":[{"match":"a/b","forward":{"header":"X"}}]}`, // doctor says that it matches nothing
		`{"mcpServers":{"a":{"command":"x"},"b":{"url":"http://h"}},"policies":[{"match":"**","forward":{"header":"X","argument":"y"}},{"match":"b/*","forward":{"header":"X"}}]}`,
		overHTTP(`"timeout":"2m","forward":{"argument":"ref"},"reconcile":{"tool":"s","found":"$key","settle":"2m"}`),
		policyWith(`"key":"[.a, $args.b]","bind":[".a"]`), policyWith(`"classify":[{"if":"true","class":"exists"}]`),
	}
}
