package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	idem "github.com/mcp-idem/mcp-idem"
)

func jq(text string) *JQ {
	q, err := Compile(text)
	if err != nil {
		panic(err)
	}
	return q
}

func TestPlainPath(t *testing.T) {
	for text, want := range map[string]idem.Path{
		`.a`: {"a"}, `.a.b`: {"a", "b"}, `.a["b c"]`: {"a", "b c"}, `.["a"]`: {"a"}, `."a b".c`: {"a b", "c"}, ` .a # why`: {"a"}, `.["mcp-idem/x"].y`: {"mcp-idem/x", "y"},
	} {
		got, err := ParsePath(text)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParsePath(%s) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{`.`, `.a?`, `.a[0]`, `.a[]`, `..`, `.a | .b`, `.a + .b`, `.a["\(1)"]`, `.a[1:2]`, `"a"`, `$key`, `a`, `.a |`, ``, `def f: 1; .a`, `.[.a]`} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("ParsePath(%s) = %q, want an error", text, p)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`.order_id |`: "byte", `$nope`: "$business_key", `nope`: "nope", `$ENV.HOME`: "$ENV", `[1, {a: (env | keys)}]`: "env", `input`: "input", `[inputs]`: "inputs",
		`.a + (now | tostring)`: "now", `if debug then 1 else 2 end`: "debug", `"\(now)"`: "now", `halt_error`: "halt_error", `import "a" as a; .`: "modules",
	} {
		if _, err := Compile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile(%s): %v, want %q", text, err, want)
		}
	}
}

func TestUses(t *testing.T) {
	for text, want := range map[string]bool{
		`{external_reference: $key}`: true, `{$key}`: true, `"ref-\($key)"`: true, `{k: $business_key}`: true, `[$args.a, {b: [$key]}]`: true,
		`{external_reference: "$key"}`: false, `{a: $args.order_id}`: false, `# $key` + "\n.": false, `1 as $key | {a: $key}`: false, `{key: .key}`: false,
	} {
		if got := jq(text).Uses("$key", "$business_key"); got != want {
			t.Errorf("%s uses the key: %v", text, got)
		}
	}
	if jq(`$key`).Uses("$business_key") {
		t.Error("$key is not $business_key")
	}
}

func TestValues(t *testing.T) {
	in, err := Decode([]byte(`{"id":9007199254740993,"p":1.10,"big":123456789012345678901234567890,"l":[1,null]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{id, p}`: `[{"id":9007199254740993,"p":1.10}]`, // digits survive
		`.id + 1`: `[9007199254740994]`, `.big + 1`: `[123456789012345678901234567891]`,
		`.l[]`: `[1,null]`, `empty`: `null`,
		`[$key, $business_key, $args, $task, $step, $external_id]`: `[["k",{"a":1},null,"t",null,null]]`,
	} {
		got, err := jq(text).Values(context.Background(), in, Vars{Key: "k", BusinessKey: map[string]any{"a": 1}, Task: "t"})
		var list any
		if got != nil {
			list = got
		}
		raw, _ := Encode(list)
		if err != nil || string(raw) != want {
			t.Errorf("%s = %s, %v; want %s", text, raw, err, want)
		}
	}
	for _, text := range []string{`.id.x`, `1, error("x")`, `range(1e9)`, `last(repeat(1))`} {
		if got, err := jq(text).Values(context.Background(), in, Vars{}); err == nil || got != nil {
			t.Errorf("%s = %v, want an error and no values", text, got)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := jq(`last(range(1e9))`).Values(ctx, nil, Vars{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, in := range []string{``, `{`, `{"a":1,"\u0061":2}`, "\"\xff\"", `1 2`, `[1,]`, `{"a"}`} {
		if v, err := Decode([]byte(in)); err == nil {
			t.Errorf("Decode(%q) = %v", in, v)
		}
	}
}

func TestBusinessKey(t *testing.T) {
	for _, c := range []struct{ key, args, want string }{
		{`.order_id`, `{"order_id":"o1"}`, `o1`}, {`.order_id`, `{"order_id":"o\u0031"}`, `o1`}, {`.a["b"]`, `{"a":{"b":"x y"}}`, `x y`},
		{`.n`, `{"n":5}`, `5`}, {`.n`, `{"n":50e-1}`, `5`}, {`.n`, `{"n":"5"}`, `"5"`}, {`.n`, `{"n":9007199254740993}`, `9007199254740993`},
		{`.n`, `{"n":"true"}`, `"true"`}, {`.n`, `{"n":true}`, `true`}, {`.n`, `{"n":"\"5\""}`, `"\"5\""`}, {`.n`, `{"n":{"b":1.0,"a":"é"}}`, `{"a":"é","b":1}`},
		{`[.a, .b]`, `{"a":1.0,"b":"x"}`, `[1,"x"]`}, {`.a + 0`, `{"a":9007199254740993}`, `9007199254740993`}, {`"\(.a)/\(.b)"`, `{"a":"x","b":"y"}`, `x/y`},
		{`$args.a`, `{"a":"x"}`, `x`},
	} {
		got, err := jq(c.key).BusinessKey([]byte(c.args))
		if err != nil || got != c.want {
			t.Errorf("%s of %s = %s, %v; want %s", c.key, c.args, got, err, c.want)
		}
	}
	for _, c := range [][2]string{
		{`.order_id`, `{}`}, {`.order_id`, `{"order_id":null}`}, {`.order_id`, `{"order_id":""}`}, {`.order_id`, `{"order_id":{}}`}, {`.order_id`, `{"order_id":[]}`}, {`.a.b`, `{"a":1}`},
		{`.order_id`, `{"order_id":1e999}`}, {`.order_id`, `{"order_id":`},
		{`.a, .b`, `{"a":1,"b":2}`}, {`.a // empty`, `{}`}, {`.a.b + 1`, `{"a":"x"}`}, {`[.a, .b]`, `{"a":1}`}, {`{a, b}`, `{"a":1}`}, {`[.a]`, `{"a":1,"a":2}`}, {`nan`, `{}`},
	} {
		if got, err := jq(c[0]).BusinessKey([]byte(c[1])); !errors.Is(err, idem.ErrInvalidArguments) {
			t.Errorf("%s of %s = %q, %v; want INVALID_ARGUMENTS", c[0], c[1], got, err)
		}
	}
	if _, err := jq(`.a`).BusinessKey(nil); !errors.Is(err, idem.ErrInvalidArguments) {
		t.Errorf("no arguments: %v", err)
	}
	if v, _ := Encode(jq(`.n`).KeyValue([]byte(`{"n":5}`))); string(v) != `5` {
		t.Errorf("KeyValue = %s", v)
	}
}
