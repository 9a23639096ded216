package policy

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	idem "github.com/mcp-idem/mcp-idem"
)

// BusinessKey reads the business key off raw arguments, as text. Two keys are
// the same text exactly where they are the same JSON value, as the request hash
// compares values: 5 and 5.0 are one key, 5 and "5" are two. A string is its
// own text, unless that would read as JSON: then it is quoted.
//
// A missing, null or empty key, several values and an error of the expression
// are INVALID_ARGUMENTS.
func (q *JQ) BusinessKey(args []byte) (string, error) {
	raw, err := q.keyBytes(args)
	if err != nil {
		return "", err
	}
	form, err := idem.Canonical(raw)
	if err != nil {
		return "", q.refuse("unusable", err)
	}
	switch string(form) {
	case `null`, `""`, `[]`, `{}`:
		return "", q.refuse("null or empty", nil)
	}
	if form[0] != '"' {
		return string(form), nil
	}
	text, err := jsontext.AppendUnquote(nil, form)
	if err != nil {
		return "", q.refuse("unusable", err)
	}
	if _, err := idem.Canonical(text); err == nil {
		return string(form), nil
	}
	return string(text), nil
}

// KeyValue is the business key as jq sees it ($business_key), with its own
// type. It is null where BusinessKey gives an error.
func (q *JQ) KeyValue(args []byte) any {
	raw, err := q.keyBytes(args)
	if err != nil {
		return nil
	}
	v, err := Decode(raw)
	if err != nil {
		return nil
	}
	return v
}

func (q *JQ) keyBytes(args []byte) ([]byte, error) {
	if q.plain {
		if args == nil {
			return nil, q.refuse("missing", nil)
		}
		raw, ok, err := idem.Find(args, q.path)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, q.refuse("missing", nil)
		}
		return raw, nil
	}
	var in any
	if args != nil {
		var err error
		if in, err = Decode(args); err != nil {
			return nil, q.refuse("unreadable", err)
		}
	}
	v, err := q.One(context.Background(), in, Vars{Args: in})
	if err != nil {
		return nil, q.refuse("not one value", err)
	}
	if missingPart(v) {
		return nil, q.refuse("missing a part", nil)
	}
	return Encode(v)
}

// missingPart: a key made of several fields, one of which is null, would make
// one operation of all that lack it.
func missingPart(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if e == nil {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if e == nil {
				return true
			}
		}
	}
	return false
}

func (q *JQ) refuse(what string, err error) error {
	return &idem.Error{Code: idem.CodeInvalidArguments, Text: fmt.Sprintf("the business key %s is %s", q.text, what), Err: err}
}
