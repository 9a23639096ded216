package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Result is what decides about a tool's result, read off its raw bytes. Nothing
// below the members it looks at is judged: the effect has happened, whatever
// the upstream wrote there.
type Result struct {
	Interim      bool   // resultType input_required
	RequestState string // of an interim result
	IsError      bool
	Text         string // of the text contents, joined by new lines
}

// ReadResult reads a tool's result. An error means that it is none: then it says
// nothing about the effect.
func ReadResult(raw []byte) (Result, error) {
	members, err := members(raw)
	if err != nil {
		return Result{}, err
	}
	var kind, state string
	if err := read(members, "resultType", '"', &kind); err != nil {
		return Result{}, err
	}
	switch kind {
	case "", "complete":
	case "input_required":
		err := read(members, "requestState", '"', &state)
		return Result{Interim: true, RequestState: state}, err
	default:
		return Result{}, fmt.Errorf("resultType %.40q", kind)
	}
	var r Result
	if err := read(members, "isError", 0, &r.IsError); err != nil {
		return r, err
	}
	content, ok := members["content"]
	if !ok || content.Kind() != '[' {
		return r, errors.New("the result has no content array")
	}
	r.Text = contentText(content)
	return r, nil
}

// members splits an object. Names are compared to the letter, which
// encoding/json does not do. A name that comes twice is an error: which of the
// two holds is anybody's guess.
func members(raw []byte) (map[string]jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if k := dec.PeekKind(); k != '{' {
		return nil, fmt.Errorf("not an object but %s", k)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	out := make(map[string]jsontext.Value, 4)
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("two members %.40q", key)
		}
		out[key] = value // stays valid: the decoder reads in place
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	return out, nil
}

// read decodes a member, if it is there and not null. kind is the one it has to
// be of; 0: true or false.
func read(members map[string]jsontext.Value, name string, kind jsontext.Kind, into any) error {
	raw, ok := members[name]
	if !ok || raw.Kind() == 'n' {
		return nil
	}
	if k := raw.Kind(); k != kind && (kind != 0 || (k != 't' && k != 'f')) {
		return fmt.Errorf("%s is %s", name, k)
	}
	return json.Unmarshal(raw, into)
}

func contentText(content jsontext.Value) string {
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var text strings.Builder
	for _, p := range parts {
		c, err := members(p)
		if err != nil {
			continue
		}
		var kind, line string
		if read(c, "type", '"', &kind) != nil || kind != "text" || read(c, "text", '"', &line) != nil {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(line)
	}
	return text.String()
}
