package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Codes of the stateless protocol.
const (
	codeHeaderMismatch = -32020
	codeNoCapability   = -32021
	codeBadVersion     = -32022
)

const (
	headerMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
)

// errorStatus is the HTTP status of an answer of the stateless protocol that is
// an error.
func errorStatus(code int64) int {
	switch code {
	case codeNoMethod:
		return http.StatusNotFound
	case codeParse, codeInvalidRequest, codeInvalidParams, codeHeaderMismatch, codeNoCapability, codeBadVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// answerStatus is the same of an answer's line.
func answerStatus(msg []byte) int {
	if !bytes.Contains(msg, []byte(`"error"`)) {
		return http.StatusOK
	}
	object := find(msg, "error")
	if object == nil {
		return http.StatusOK
	}
	return errorStatus(rpcError(object).Code)
}

// versions are those of the protocol that clients may speak, the latest first.
var versions = []string{modernVersion, legacyVersion, "2025-06-18", "2025-03-26", "2024-11-05"}

// removed are the requests of earlier protocols that the stateless one has not.
var removed = map[string]bool{"initialize": true, "ping": true, "logging/setLevel": true, "resources/subscribe": true, "resources/unsubscribe": true}

// fault is why a message of the stateless protocol is refused before anything
// looks at what it asks for.
type fault struct {
	code int
	text string
	data string // JSON; empty: none
}

func mismatch(text string) *fault { return &fault{code: codeHeaderMismatch, text: text} }

// modernFault checks what the stateless protocol wants of a POST: who routes by
// headers must not see another request than who reads the body (SEP-2243,
// SEP-2575). nil: nothing is wrong, or the message is of an earlier protocol.
func modernFault(h http.Header, e envelope) *fault {
	params := e.params.of(e.line)
	meta := find(params, "_meta")
	said, _ := unquote(find(meta, metaVersion))
	head := h.Get(headerVersion)
	if said < modernVersion && (head < modernVersion || h.Get(headerSession) != "") {
		if head != "" && !slices.Contains(versions, head) { // 2025-06-18 and later want it refused
			return &fault{code: codeInvalidRequest, text: headerVersion + " names no version of the protocol: want one of " + strings.Join(versions, ", ")}
		}
		return nil
	}
	name, named := nameIn(e.method, params)
	switch {
	case e.method == "":
		return &fault{code: codeInvalidRequest, text: "in this protocol servers ask for nothing, so that there is nothing to answer"}
	case head == "":
		return mismatch(headerVersion + " is missing")
	case said == "":
		return &fault{code: codeInvalidParams, text: "_meta says no " + metaVersion}
	case head != said:
		return mismatch(headerVersion + " and _meta name different versions")
	case said != modernVersion:
		return &fault{code: codeBadVersion, text: "unsupported protocol version: " + said,
			data: fmt.Sprintf(`{"supported":["%s"],"requested":%s}`, strings.Join(versions, `","`), quote(said))}
	case !one(h, headerMethod, e.method):
		return mismatch(headerMethod + " is not the request's method")
	case named && !one(h, headerName, name):
		return mismatch(headerName + " is not what the request names")
	case !e.id.there():
		return nil
	case !isObject(find(meta, metaCapabilities)):
		return &fault{code: codeInvalidParams, text: "_meta says no " + metaCapabilities}
	case removed[e.method]:
		return &fault{code: codeNoMethod, text: e.method + " is none of protocol " + modernVersion}
	}
	return nil
}

// nameIn is what a request names, where a header has to say it too.
func nameIn(method string, params []byte) (name string, named bool) {
	key := "name"
	switch method {
	case "tools/call", "prompts/get":
	case "resources/read":
		key = "uri"
	default:
		return "", false
	}
	name, err := unquote(find(params, key))
	return name, err == nil
}

// one reports whether a header is there once, and says want.
func one(h http.Header, name, want string) bool {
	values := h.Values(name)
	if len(values) != 1 {
		return false
	}
	got, ok := headerValue(values[0])
	return ok && got == want
}

// headerValue reads what headerText has written.
func headerValue(s string) (string, bool) {
	s = strings.Trim(s, " \t")
	coded, ok := strings.CutPrefix(s, "=?base64?")
	if ok {
		coded, ok = strings.CutSuffix(coded, "?=")
	}
	if !ok {
		return s, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(coded)
	return string(b), err == nil
}

func (f *fault) write(w http.ResponseWriter, id []byte) {
	if len(id) == 0 {
		id = []byte("null")
	}
	text, _ := json.Marshal(f.text) // of strings there are no errors
	data := ""
	if f.data != "" {
		data = `,"data":` + f.data
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(errorStatus(int64(f.code)))
	_, _ = fmt.Fprintf(w, `%s%s,"error":{"code":%d,"message":%s%s}}`, ownHead, id, f.code, text, data)
}
