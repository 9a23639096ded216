package mcp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-idem/mcp-idem"
)

// validText reports whether an answer is well-formed text. JSON must be UTF-8;
// what is not cannot be kept and given back field for field.
func validText(line []byte) bool { return utf8.Valid(line) }

func errorTail(code int, text string) []byte {
	return fmt.Appendf(nil, `,"error":{"code":%d,"message":%s}}`, code, quote(text))
}

// render is the line that answers a call, in parts.
func (c *call) render(a *idem.Answer) [][]byte {
	head := []byte(`{"jsonrpc":"2.0","id":`)
	meta := metaOf(a)
	if a.Err == nil && a.Kind == idem.ResultError && a.Result != nil {
		return [][]byte{head, c.id, []byte(`,"error":`), errorWith(a.Result, meta), []byte(`}`)}
	}
	result := a.Result
	switch {
	case a.Err != nil:
		result = made(refusalText(a), true)
	case result == nil:
		result = made(keptText(a.Record), false)
	}
	if c.translated() && isInterim(result) {
		result = made(interimText, true)
	}
	result = resultWith(result, meta)
	if c.modern && isObject(result) && find(result, "resultType") == nil {
		if typed, err := setMembers(result, field{"resultType", []byte(`"complete"`)}); err == nil {
			result = typed
		}
	}
	return [][]byte{head, c.id, []byte(`,"result":`), result, []byte(`}`)}
}

// made is a tool result of our own.
func made(text string, isError bool) []byte {
	b := append([]byte(`{"content":[{"type":"text","text":`), quote(text)...)
	b = append(b, `}]`...)
	if isError {
		b = append(b, `,"isError":true`...)
	}
	return append(b, '}')
}

// resultWith puts our facts into a result's _meta; a result that is no object
// stays as it is.
func resultWith(result []byte, meta []field) []byte {
	if !isObject(result) {
		return result
	}
	out, err := setIn(result, "_meta", meta...)
	if err != nil {
		return result
	}
	return out
}

// errorWith puts our facts into error.data._meta. Data that is no object moves
// to data.value to make room for them.
func errorWith(object []byte, meta []field) []byte {
	data := find(object, "data")
	var err error
	if data != nil && !isObject(data) && string(data) != "null" {
		data, err = setMembers(nil, field{"value", data})
	}
	if err == nil {
		if data, err = setIn(data, "_meta", meta...); err == nil {
			if out, err := setMembers(object, field{"data", data}); err == nil {
				return out
			}
		}
	}
	return object
}

// metaOf are the facts about an operation that go with its answer.
func metaOf(a *idem.Answer) []field {
	var out []field
	add := func(name string, raw []byte) { out = append(out, field{"mcp-idem/" + name, raw}) }
	words := func(name, s string) {
		if s != "" {
			add(name, quote(s))
		}
	}
	op, rec := a.Op, a.Record
	if a.Err != nil {
		words("code", string(a.Err.Code))
		if op == (idem.ID{}) {
			op = a.Err.Op
		}
		if rec == nil {
			rec = a.Err.Record
		}
	} else if a.NotRecorded {
		words("code", string(idem.CodeNotRecorded))
	}
	if op != (idem.ID{}) {
		words("op", op.String())
	}
	if rec != nil {
		words("state", string(rec.State))
		// Who asks for something else under the key of an operation learns that
		// it exists, and nothing of what is in it.
		if a.Err == nil || a.Err.Code != idem.CodeMismatch {
			words("task", rec.Task)
			words("step", rec.Step)
			if n := attemptOf(rec); n > 0 {
				add("attempt", strconv.AppendUint(nil, uint64(n), 10))
			}
			words("external_id", rec.ExternalID)
		}
		if a.Err == nil && rec.Reconciled {
			add("reconciled", []byte("true"))
		}
	}
	if a.Replayed && a.Err == nil {
		add("replayed", []byte("true"))
	}
	if a.Err != nil && a.Err.RetryAt != 0 {
		words("retry_at", a.Err.RetryAt.Time().Format(time.RFC3339))
	}
	return out
}

func attemptOf(rec *idem.Record) uint32 {
	if rec.CommittedBy > 0 {
		return rec.CommittedBy
	}
	return rec.Last
}

// refusalText is what a person or a model reads. That a person has to decide
// goes with the command for it.
func refusalText(a *idem.Answer) string {
	text := a.Err.Text
	op := a.Op
	if op == (idem.ID{}) {
		op = a.Err.Op
	}
	if a.Err.Code == idem.CodeNeedsReview && !strings.Contains(text, "ops resolve") {
		text += fmt.Sprintf(" An operator decides with: mcp-idem-server ops resolve %s --as committed|not-applied --reason TEXT", op)
	}
	if text == "" {
		text = string(a.Err.Code)
	}
	return text
}

// keptText stands in for the result of an operation that was carried out and
// whose result is not in the ledger.
func keptText(rec *idem.Record) string {
	var b strings.Builder
	b.WriteString("The operation was carried out.")
	if rec == nil {
		return b.String()
	}
	if rec.ResultSize > 0 {
		fmt.Fprintf(&b, " Its result of %d bytes was too large to keep", rec.ResultSize)
		if len(rec.ResultDigest) > 0 {
			fmt.Fprintf(&b, " (SHA-256 %s)", hex.EncodeToString(rec.ResultDigest))
		}
		b.WriteString(".")
	} else {
		b.WriteString(" No result of the tool is on record.")
	}
	if rec.ExternalID != "" {
		fmt.Fprintf(&b, " Its id in the outside system is %s.", bytes.ToValidUTF8([]byte(rec.ExternalID), []byte("?")))
	}
	return b.String()
}
