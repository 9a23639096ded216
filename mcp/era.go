package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// era says how what a client says is fitted to a server that speaks the protocol
// of another era.
type era uint32 // 0: nothing is changed

const (
	// toModern: the client has said initialize, and the server is stateless only.
	toModern era = iota + 1
	// toLegacy: the client is stateless, and the server needs initialize.
	toLegacy
	// mixed: clients of either era share a server that is stateless.
	mixed
)

const (
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServer       = "io.modelcontextprotocol/serverInfo"
)

// hello is how a client introduces itself, in either era; raw.
type hello struct{ info, capabilities []byte }

var ownHello = hello{[]byte(`{"name":"mcp-idem","version":"1"}`), []byte(`{}`)}

// modernHello reads how the sender of a request introduces itself; nil: it does
// not speak the stateless protocol.
func modernHello(e envelope) *hello {
	meta := find(e.params.of(e.line), "_meta")
	version, err := unquote(find(meta, metaVersion))
	if err != nil || version < modernVersion { // versions are dates
		return nil
	}
	return &hello{orElse(find(meta, metaClient), ownHello.info), orElse(find(meta, metaCapabilities), ownHello.capabilities)}
}

// legacyHello reads the same from initialize.
func legacyHello(e envelope) hello {
	params := e.params.of(e.line)
	return hello{orElse(find(params, "clientInfo"), ownHello.info), orElse(find(params, "capabilities"), ownHello.capabilities)}
}

func orElse(raw, otherwise []byte) []byte {
	if raw == nil {
		return otherwise
	}
	return bytes.Clone(raw)
}

// answers reports whether the client answers requests of a server.
func (h hello) answers() bool {
	for _, name := range []string{"elicitation", "sampling", "roots"} {
		if find(h.capabilities, name) != nil {
			return true
		}
	}
	return false
}

// meta is what every request to a stateless server carries.
func (h hello) meta() []field {
	return []field{{metaVersion, quote(modernVersion)}, {metaClient, h.info}, {metaCapabilities, h.capabilities}}
}

func (h hello) initialize() []byte {
	return fmt.Appendf(nil, `{"protocolVersion":"%s","capabilities":%s,"clientInfo":%s}`, legacyVersion, h.capabilities, h.info)
}

// isModern reports whether an answer to server/discover names the stateless
// protocol.
func isModern(discovered []byte) bool {
	for _, v := range elements(find(discovered, "supportedVersions")) {
		if string(v) == `"`+modernVersion+`"` {
			return true
		}
	}
	return false
}

// greet introduces h to a server: one that is stateless says so in its answer to
// server/discover, any other gets initialize. said is its answer.
func (c *peer) greet(ctx context.Context, h hello) (modern bool, said []byte, err error) {
	if said, err = c.discover(ctx, h); said != nil || errors.Is(err, errGone) {
		return said != nil, said, err
	}
	if said, err = c.ask(ctx, "initialize", h.initialize()); err != nil {
		return false, nil, err
	}
	c.wire.agreed(said)
	return false, said, c.wire.notify(initializedLine)
}

// discover is nil where the server is not stateless.
func (c *peer) discover(ctx context.Context, h hello) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverLimit)
	defer cancel()
	params, err := setIn(nil, "_meta", h.meta()...)
	if err != nil {
		return nil, err
	}
	said, err := c.ask(ctx, "server/discover", params)
	if err != nil || !isModern(said) {
		return nil, err
	}
	return said, nil
}

// fitted is a request as the server has to get it. done: it needs no server, and
// has its answer.
func (c *peer) fitted(e envelope, p *pending) (line []byte, id span, done bool) {
	switch era(c.era.Load()) {
	case toModern:
		return c.modernized(e, p)
	case mixed:
		if modernHello(e) == nil {
			return c.modernized(e, p)
		}
	case toLegacy:
		switch e.method {
		case "server/discover":
			p.end(answerLine(discovered(silent(c.said))))
			return nil, span{}, true
		case "subscriptions/listen":
			p.end(errorLine(codeNoMethod, "this server speaks an earlier protocol; what it has to say on its own cannot be subscribed to in this one"))
			return nil, span{}, true
		}
		if modernHello(e) != nil { // it may share the conversation with others
			p.fit = completed(e.method)
			if params, err := undressed(e.params.of(e.line)); err == nil {
				line, id = e.withParams(params)
				return line, id, false
			}
		}
	}
	return e.line, e.id, false
}

func (c *peer) modernized(e envelope, p *pending) ([]byte, span, bool) {
	switch e.method {
	case "ping":
		p.end(answerLine([]byte(`{}`)))
		return nil, span{}, true
	case "logging/setLevel":
		level := bytes.Clone(find(e.params.of(e.line), "level"))
		c.level.Store(&level)
		p.end(answerLine([]byte(`{}`)))
		return nil, span{}, true
	case "resources/subscribe", "resources/unsubscribe":
		p.end(errorLine(codeNoMethod, "this server speaks a later protocol, in which resources are not subscribed to one by one"))
		return nil, span{}, true
	}
	params, err := c.dressed(e.params.of(e.line))
	if err == nil {
		var line []byte
		if line, err = setMembers(e.line, field{"params", params}); err == nil {
			var parts parser
			if out, perr := parts.parse(line); perr == nil {
				p.fit = refuseInterim
				return line, out.id, false
			}
		}
	}
	p.end(errorLine(codeInvalidParams, "the parameters cannot be read"))
	return nil, span{}, true
}

// dressed adds to a request's params what a stateless server wants to know where
// its client has said it once, and takes it away where the server was told once.
func (c *peer) dressed(params []byte) ([]byte, error) {
	switch era(c.era.Load()) {
	case toModern:
	case mixed:
		if find(find(params, "_meta"), metaVersion) != nil { // its client speaks that protocol
			return params, nil
		}
	case toLegacy:
		return undressed(params)
	default:
		return params, nil
	}
	meta := c.hello.meta()
	if level := c.level.Load(); level != nil && *level != nil {
		meta = append(meta, field{metaLogLevel, *level})
	}
	if len(params) == 0 {
		params = []byte(`{}`)
	}
	return setIn(params, "_meta", meta...)
}

// undressed takes away what a stateless client says in every request: a library
// that knows both protocols would take the request for one of the later one, which
// its server may have been told not to speak.
func undressed(params []byte) ([]byte, error) {
	if find(find(params, "_meta"), metaVersion) == nil {
		return params, nil
	}
	return setIn(params, "_meta", field{metaVersion, nil}, field{metaClient, nil}, field{metaCapabilities, nil}, field{metaLogLevel, nil})
}

// silent is a server's answer to initialize without what it would say on its own,
// to which a stateless client cannot subscribe here.
func silent(said []byte) []byte {
	capabilities := find(said, "capabilities")
	for _, of := range []string{"tools", "prompts", "resources"} {
		if !isObject(find(capabilities, of)) {
			continue
		}
		without, err := setIn(capabilities, of, field{"listChanged", nil}, field{"subscribe", nil})
		if err != nil {
			return said
		}
		capabilities = without
	}
	if capabilities == nil {
		return said
	}
	out, err := setMembers(said, field{"capabilities", capabilities})
	if err != nil {
		return said
	}
	return out
}

// discovered is the answer to server/discover of a server that has answered
// initialize.
func discovered(said []byte) []byte {
	out := fmt.Appendf(nil, `{"resultType":"complete","supportedVersions":["%s"],"capabilities":%s,"ttlMs":0,"cacheScope":"private"`,
		modernVersion, orElse(find(said, "capabilities"), []byte(`{}`)))
	if text := find(said, "instructions"); text != nil {
		out = append(append(out, `,"instructions":`...), text...)
	}
	if info := find(said, "serverInfo"); info != nil {
		out = append(append(append(out, `,"_meta":{"`+metaServer+`":`...), info...), '}')
	}
	return append(out, '}')
}

// initialized is the answer to initialize of a server that has answered
// server/discover. version is the client's.
func initializedBy(said, version []byte) []byte {
	if v, err := unquote(version); err != nil || v > legacyVersion {
		version = quote(legacyVersion)
	}
	out := fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":%s,"serverInfo":%s`, version,
		orElse(find(said, "capabilities"), []byte(`{}`)), orElse(find(find(said, "_meta"), metaServer), []byte(`{"name":"server","version":"unknown"}`)))
	if text := find(said, "instructions"); text != nil {
		out = append(append(out, `,"instructions":`...), text...)
	}
	return append(out, '}')
}

// completed marks an earlier protocol's result as the whole one, and where the
// stateless protocol wants it, as not to be kept.
func completed(method string) func(envelope) envelope {
	fields := []field{{"resultType", []byte(`"complete"`)}}
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		fields = append(fields, field{"ttlMs", []byte(`0`)}, field{"cacheScope", []byte(`"private"`)})
	}
	return func(e envelope) envelope {
		if !e.result.there() || find(e.result.of(e.line), "resultType") != nil {
			return e
		}
		result, err := setMembers(e.result.of(e.line), fields...)
		if err != nil {
			return e
		}
		return answerLine(result)
	}
}

const interimText = "The server asks for something in the middle of this request, which the client's protocol has no way to answer."

// isInterim reports whether a result asks the client for input.
func isInterim(result []byte) bool {
	return isObject(result) && string(find(result, "resultType")) == `"input_required"`
}

// refuseInterim stands in for a result that a client of an earlier protocol would
// take for a whole one.
func refuseInterim(e envelope) envelope {
	if e.result.there() && isInterim(e.result.of(e.line)) {
		return errorLine(codeInternal, interimText)
	}
	return e
}

// answerLine is an answer of our own in an upstream's place.
func answerLine(result []byte) envelope {
	line := append([]byte(`{"jsonrpc":"2.0","id":0,"result":`), result...)
	from := len(line) - len(result)
	return envelope{line: append(line, '}'), id: span{len(ownHead), len(ownHead) + 1}, result: span{from, from + len(result)}}
}

const ownHead = `{"jsonrpc":"2.0","id":`

func errorLine(code int, text string) envelope {
	line := append([]byte(ownHead+"0"), errorTail(code, text)...)
	from := len(ownHead) + len(`0,"error":`)
	return envelope{line: line, id: span{len(ownHead), len(ownHead) + 1}, errObj: span{from, len(line) - 1}}
}
