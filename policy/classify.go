package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"

	idem "github.com/mcp-idem/mcp-idem"
)

// Rule overrules the table: an attempt for which If gives anything but false
// and null (an error of the expression counts as no) is of the class.
type Rule struct {
	// If sees the members of the result, and error (the text), rpc_code and
	// http_status where they exist.
	If    *JQ
	Class idem.Class
	// Trust is the author's word that bytes which may have left had no effect.
	// Without it a rule cannot say not_sent, nor throttled or rejected of an
	// attempt that was never answered.
	Trust bool
}

func (r *Rule) needsTrust(f *Facts) bool {
	switch r.Class {
	case idem.ClassNotSent:
		return true
	case idem.ClassThrottled, idem.ClassRejected:
		return !f.answered() && f.HTTPStatus == 0
	default:
		return false
	}
}

// transportFailure is how texts of tools read that wrap a failure of a
// transport: what is behind it may have happened.
var transportFailure = regexp.MustCompile(`(?i)tim(ed|e)[ -]?out|deadline|ETIMEDOUT|ECONNRESET|ECONNABORTED|EPIPE|socket hang up|` +
	`connection (was )?(reset|closed|aborted|lost)|broken pipe|unexpected EOF|bad gateway|service unavailable|\b50[234]\b`)

// afterHandler is how servers say with -32602 that not the request was invalid
// but what their handler returned.
var afterHandler = regexp.MustCompile(`(?i)output (validation|schema)|structured ?content`)

// Classify says how an attempt ended, by the entry's rules and the package's
// table. It is safe for concurrent use.
func (t *Tool) Classify(ctx context.Context, f Facts) idem.Outcome {
	if !f.answered() && !f.Sent {
		return idem.Outcome{Class: idem.ClassNotSent, Ended: idem.EndByNotSent, Text: errText(f.Err, "nothing was sent")}
	}
	o, interim := t.table(&f)
	o.RetryAfter = f.RetryAfter
	if f.answered() {
		o.Ended = idem.EndByAnswer
	}
	if interim {
		return o
	}
	if c, ok := t.overruled(ctx, &f, o.Text); ok {
		o.Class = c
	}
	o.Text = cut(o.Text)
	switch {
	case o.Class == idem.ClassAmbiguous: // an answer that settles nothing is never replayed as the outcome
	case f.Result != nil:
		o.Result, o.Kind = f.Result, idem.ResultValue
	case f.RPCError != nil:
		o.Result, o.Kind = f.RPCError, idem.ResultError
	}
	if o.Class == idem.ClassSuccess {
		o.ExternalID = t.ExternalID(ctx, f.Result)
		o.Text = ""
	}
	return o
}

// table is the package's table.
func (t *Tool) table(f *Facts) (o idem.Outcome, interim bool) {
	switch {
	case f.RPCError != nil:
		e, err := readError(f.RPCError)
		if err != nil {
			o.Class, o.Text = idem.ClassAmbiguous, "unreadable error: "+err.Error()
		} else {
			o.Class, o.Text = e.class(), e.message
			if e.code == urlElicitation {
				return idem.Outcome{Class: idem.ClassInterim, Result: f.RPCError, Kind: idem.ResultError, ParkedOn: StateDigest("")}, true
			}
		}
	case f.Result != nil:
		r, err := ReadResult(f.Result)
		switch {
		case err != nil:
			o.Class, o.Text = idem.ClassAmbiguous, "no result: "+err.Error()
		case r.Interim:
			return idem.Outcome{Class: idem.ClassInterim, Result: f.Result, Kind: idem.ResultValue, ParkedOn: StateDigest(r.RequestState)}, true
		case !r.IsError:
			o.Class, o.Text = idem.ClassSuccess, r.Text
		case t.Query == nil && transportFailure.MatchString(r.Text):
			o.Class, o.Text = idem.ClassAmbiguous, r.Text
		default:
			o.Class, o.Text = idem.ClassReported, r.Text
		}
	default:
		o.Class, o.Text = statusClass(f.HTTPStatus), errText(f.Err, "no answer")
	}
	return o, false
}

// statusClass: an endpoint of MCP refuses some requests before it looks at them
// (RFC 9110, section 15.5; RFC 6585). Any other status may come after the work was
// done, or from somebody between.
func statusClass(status int) idem.Class {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return idem.ClassRejected
	case http.StatusTooManyRequests:
		return idem.ClassThrottled
	}
	return idem.ClassAmbiguous
}

// urlElicitation is MCP's error for a call that goes on once a person has been
// to a URL: an interim answer in the form of an error.
const urlElicitation = "-32042"

// rpcError is a JSON-RPC error object.
type rpcError struct {
	code    json.Number
	message string
}

func readError(raw []byte) (e rpcError, err error) {
	m, err := members(raw)
	if err != nil {
		return e, err
	}
	if err := read(m, "code", '0', &e.code); err != nil {
		return e, err
	}
	return e, read(m, "message", '"', &e.message)
}

// class: JSON-RPC 2.0 section 5.1 has the codes. Only those that a server gives
// before it calls a handler are definite, and servers use the others freely.
func (e rpcError) class() idem.Class {
	switch {
	case e.code == "-32601", e.code == "-32602" && !afterHandler.MatchString(e.message):
		return idem.ClassRejected
	}
	return idem.ClassAmbiguous
}

// overruled asks the entry's rules; the first that matches decides.
func (t *Tool) overruled(ctx context.Context, f *Facts, text string) (idem.Class, bool) {
	if len(t.Rules) == 0 {
		return "", false
	}
	in := map[string]any{}
	if v, err := Decode(f.Result); err == nil {
		if object, ok := v.(map[string]any); ok {
			in = object
		}
	}
	if f.HTTPStatus != 0 {
		in["http_status"] = f.HTTPStatus
	}
	if f.RPCError != nil || f.Err != nil {
		in["error"] = text
	}
	if e, err := readError(f.RPCError); err == nil && e.code != "" {
		in["rpc_code"] = e.code
	}
	for _, r := range t.Rules {
		if !r.Trust && r.needsTrust(f) {
			continue
		}
		values, err := r.If.Values(ctx, in, Vars{})
		if err == nil && len(values) > 0 && values[0] != nil && values[0] != false {
			return r.Class, true
		}
	}
	return "", false
}

// ExternalID is the outside system's id of what a result made; empty if the
// entry names none, or it is not there.
func (t *Tool) ExternalID(ctx context.Context, result []byte) string {
	if t.ID == nil || result == nil {
		return ""
	}
	in, err := Decode(result)
	if err != nil {
		return ""
	}
	v, err := t.ID.One(ctx, in, Vars{})
	if err != nil {
		return ""
	}
	id, err := Identifier(v)
	if err != nil {
		return ""
	}
	return id
}

func errText(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return cut(fmt.Sprint(err))
}
