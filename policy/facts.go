package policy

import (
	"crypto/sha256"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// Facts are what was observed of an attempt's end. At most one of Result,
// RPCError and Err is set.
type Facts struct {
	Result     []byte        // of the JSON-RPC answer, raw, null included
	RPCError   []byte        // error object of the JSON-RPC answer, raw
	Err        error         // why there is no answer
	Sent       bool          // bytes of the request may have left; an answer implies it
	HTTPStatus int           // 0: none
	RetryAfter time.Duration // what the upstream asked for; negative: something absurd; 0: nothing
}

func (f *Facts) answered() bool { return f.Result != nil || f.RPCError != nil }

// StateDigest is what an interim answer is recognised by when it is continued:
// the SHA-256 of its requestState ("" if it has none).
func StateDigest(requestState string) []byte {
	sum := sha256.Sum256([]byte(requestState))
	return sum[:]
}

// cut shortens an error text to what a record keeps.
func cut(s string) string {
	if len(s) <= idem.TextLimit {
		return s
	}
	n := idem.TextLimit
	for n > 0 && s[n]&0xC0 == 0x80 { // not in the middle of a character
		n--
	}
	return s[:n]
}
