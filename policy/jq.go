package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	idem "github.com/mcp-idem/mcp-idem"
)

// Limits of one run of an expression.
const (
	jqTime   = time.Second
	jqValues = 10_000
)

// Variables lists what every expression may use.
func Variables() []string {
	return []string{"$key", "$business_key", "$args", "$task", "$step", "$external_id"}
}

// impure are the builtins that make an expression depend on anything but its
// input: a key must come out the same in every process and at every time.
var impure = []string{"env", "$ENV", "input", "inputs", "input_filename", "input_line_number", "debug", "stderr",
	"now", "localtime", "strflocaltime", "halt", "halt_error", "modulemeta", "get_search_list"}

// Vars are the values of the variables; what is not known is null.
type Vars struct {
	Key         string // the key sent outside
	BusinessKey any
	Args        any
	Task        string
	Step        string
	ExternalID  string
}

func (v Vars) values() []any {
	text := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return []any{text(v.Key), v.BusinessKey, v.Args, text(v.Task), text(v.Step), text(v.ExternalID)}
}

// JQ is a compiled expression. It is safe for concurrent use.
type JQ struct {
	text  string
	code  *gojq.Code
	query *gojq.Query
	path  idem.Path
	plain bool
}

// Compile compiles an expression. The error says what is wrong with it.
func Compile(text string) (*JQ, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		if pe, ok := errors.AsType[*gojq.ParseError](err); ok {
			return nil, fmt.Errorf("bad jq at byte %d: %w", pe.Offset, err)
		}
		return nil, fmt.Errorf("bad jq: %w", err)
	}
	if name := uses(reflect.ValueOf(query), impure); name != "" {
		return nil, fmt.Errorf("bad jq: %s is not available here", name)
	}
	if query.Meta != nil || len(query.Imports) > 0 {
		return nil, errors.New("bad jq: modules are not available here")
	}
	code, err := gojq.Compile(query, gojq.WithVariables(Variables()))
	if err != nil {
		return nil, fmt.Errorf("bad jq: %w (the variables are %s)", err, strings.Join(Variables(), " "))
	}
	q := &JQ{text: text, code: code, query: query}
	q.path, q.plain = plainPath(query)
	return q, nil
}

// String is the expression as written.
func (q *JQ) String() string { return q.text }

// Path is the path that the expression is, if it is a plain one.
func (q *JQ) Path() (idem.Path, bool) { return q.path, q.plain }

// Uses reports whether the expression really refers to one of the variables: a
// name in a string, or bound by the expression itself, does not count.
func (q *JQ) Uses(names ...string) bool {
	rest := slices.DeleteFunc(Variables(), func(v string) bool { return slices.Contains(names, v) })
	_, err := gojq.Compile(q.query, gojq.WithVariables(rest))
	return err != nil
}

// Values runs the expression. An error of the expression, or a limit passed, is
// an error; the values before it are not returned.
func (q *JQ) Values(ctx context.Context, in any, v Vars) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, jqTime)
	defer cancel()
	iter := q.code.RunWithContext(ctx, in, v.values()...)
	var out []any
	for {
		value, ok := iter.Next()
		if !ok {
			return out, nil
		}
		if err, bad := value.(error); bad {
			return nil, fmt.Errorf("jq %s: %w", q.text, err)
		}
		if len(out) == jqValues {
			return nil, fmt.Errorf("jq %s: more than %d values", q.text, jqValues)
		}
		out = append(out, value)
	}
}

// One runs an expression that has to give exactly one value.
func (q *JQ) One(ctx context.Context, in any, v Vars) (any, error) {
	values, err := q.Values(ctx, in, v)
	if err != nil {
		return nil, err
	}
	if len(values) != 1 {
		return nil, fmt.Errorf("jq %s: %d values, want one", q.text, len(values))
	}
	return values[0], nil
}

// uses returns the first of the names that the syntax tree calls; empty: none.
func uses(v reflect.Value, names []string) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ""
		}
		if f, ok := v.Interface().(*gojq.Func); ok && slices.Contains(names, f.Name) {
			return f.Name
		}
		return uses(v.Elem(), names)
	case reflect.Slice:
		for i := range v.Len() {
			if name := uses(v.Index(i), names); name != "" {
				return name
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := uses(v.Field(i), names); name != "" {
				return name
			}
		}
	default: // holds no calls
	}
	return ""
}
