package idem

import (
	"errors"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`null`, `null`}, {` true `, `true`}, {`{}`, `{}`}, {`[ ]`, `[]`}, {`""`, `""`},
		{`{"b":1,"a":{"d":2,"c":[3 , {"y":1,"x":2}]}}`, `{"a":{"c":[3,{"x":2,"y":1}],"d":2},"b":1}`},
		{`{"\u006c":1}`, `{"l":1}`}, {`"\u006c\/\n\u0041"`, `"l/\nA"`}, {`"\u0001\u001f\""`, `"\u0001\u001f\""`},
		{`"e\u0301"`, "\"e\u0301\""}, {`"é"`, `"é"`}, // not normalised: two strings
		{`"\ud83d\ude00"`, `"😀"`},
		// RFC 8785, 3.2.3: U+1F600 is d83d de00 in UTF-16 and so before U+FB33.
		{"{\"\uFB33\":1,\"😀\":2,\"ö\":3,\"\":4}", "{\"\":4,\"ö\":3,\"😀\":2,\"\uFB33\":1}"},
		{`{"a\u0000":1,"a":2}`, `{"a":2,"a\u0000":1}`},
		{`1.0`, `1`}, {`1e0`, `1`}, {`10e-1`, `1`}, {`-0`, `0`}, {`-0.0e9`, `0`}, {`0e999999`, `0`},
		{`1e2`, `100`}, {`12.50`, `12.5`}, {`0.001`, `0.001`}, {`1e-6`, `0.000001`}, {`1e-7`, `1e-7`},
		{`100000000000000000000`, `100000000000000000000`}, {`1e21`, `1e+21`}, {`-1.5E+308`, `-1.5e+308`}, {`1e308`, `1e+308`}, {`1e-308`, `1e-308`},
		{`9007199254740993`, `9007199254740993`}, {`9007199254740993.0`, `9007199254740993`},
		{`1.0000000000000000000001`, `1.0000000000000000000001`},
		{`123456789012345678901234567890`, `1.2345678901234567890123456789e+29`},
		{`0.` + strings.Repeat("0", 400) + `7e401`, `7`}, // the value decides, not the spelling
		{`7` + strings.Repeat("0", 400) + `e-400`, `7`},
		{`1.` + strings.Repeat("1", 999), `1.` + strings.Repeat("1", 999)},
		{strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat("[", 200) + strings.Repeat("]", 200)},
	} {
		got, err := Canonical([]byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("Canonical(%.60s) = %.60s, %v; want %.60s", c.in, got, err, c.want)
		}
	}
}

// refusals are the arguments that no request may carry, with what the error has
// to name.
var refusals = []struct{ in, want string }{
	{`{"amt":1,"amt":100}`, `"/amt"`},
	{`{"o":{"amt":1,"\u0061mt":100}}`, `"/o/amt"`},
	{"{\"a\":\"\xff\"}", `"/a"`}, {"{\"a\xfe\":1}", `UTF-8`}, {`{"a":["x","\ud800"]}`, `"/a/1"`}, {`{"a":"\udc00x"}`, `"/a"`}, {`{"a":"\ud800\u0041"}`, `"/a"`},
	{"{\"a\":\"\xed\xa0\x80\"}", `"/a"`}, // a surrogate in UTF-8
	{"{\"a\":\"\xc0\xaf\"}", `"/a"`},     // overlong
	{`{"a":1e309}`, `"/a"`}, {`{"a":-1E+99999}`, `"/a"`}, {`{"a":1e99999999999999999999999}`, `"/a"`}, {`{"a":1e-309}`, `"/a"`}, {`{"a":10e308}`, `"/a"`},
	{`{"a":` + strings.Repeat("9", 1001) + `}`, `1000 digits`}, {`{"a":1.` + strings.Repeat("1", 1000) + `}`, `1000 digits`},
	{`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, `200 nested`},
	{strings.Repeat(`{"a":`, 300) + `1` + strings.Repeat("}", 300), `200 nested`},
	{strings.Repeat(`{"a":`, 20000), `200 nested`},
	{`{"a":01}`, `after object value`}, {`{"a":NaN}`, `"/a"`}, {`{"a":1,}`, ``}, {`{'a':1}`, ``}, {`{"a"`, `too early`}, {`{"a":1}}`, ``}, {`{"a":1} 2`, `follows`},
	{``, `too early`}, {"\ufeff{}", ``}, {"{\"a\":\"\n\"}", `"/a"`}, {`{"a":"\x"}`, `"/a"`},
}

func TestRefusals(t *testing.T) {
	for _, c := range append(refusals, []struct{ in, want string }{
		{`[]`, `no object`}, {`null`, `no object`}, {`"{}"`, `no object`}, {`7`, `no object`},
	}...) {
		_, err := HashRequest(Scope{}, []byte(c.in), Selection{})
		if !errors.Is(err, ErrInvalidArguments) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v; want INVALID_ARGUMENTS with %q", c.in, err, c.want)
		}
		if err != nil && len(err.Error()) > 1500 {
			t.Errorf("%.60q: an error of %d bytes", c.in, len(err.Error()))
		}
		// What is dropped from the hash is checked all the same.
		if _, err := HashRequest(Scope{}, []byte(c.in), Selection{Except: []Path{{"a"}, {"o"}, {"amt"}}}); err == nil {
			t.Errorf("%.60q: accepted where it is ignored", c.in)
		}
	}
}

func TestHashTellsApart(t *testing.T) {
	s := Scope{Tenant: "t", Tool: "srv/tool", Operation: "call"}
	same := hashOf(s, []byte(`{"a":1}`), Selection{})
	if same[0] != hashVersion {
		t.Errorf("version byte %d", same[0])
	}
	if same != hashOf(s, []byte(` {"a" : 1.0} `), Selection{}) {
		t.Error("equal arguments, two hashes")
	}
	seen := map[Hash]string{}
	add := func(name string, s Scope, args []byte) {
		h := hashOf(s, args, Selection{})
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s share a hash", name, other)
		}
		seen[h] = name
	}
	add("none", s, nil)
	for _, args := range []string{`{}`, `{"a":null}`, `{"a":{}}`, `{"a":[]}`, `{"a":""}`, `{"a":0}`, `{"a":"0"}`, `{"a":false}`, `{"a":1}`, `{"A":1}`,
		`{"a":9007199254740992}`, `{"a":9007199254740993}`, `{"a":"\u00e9"}`, `{"a":"e\u0301"}`} {
		add(args, s, []byte(args))
	}
	add("tenant", Scope{Tenant: "u", Tool: "srv/tool", Operation: "call"}, []byte(`{}`))
	add("tool", Scope{Tenant: "t", Tool: "srv/too", Operation: "lcall"}, []byte(`{}`))
	add("operation", Scope{Tenant: "t", Tool: "srv/tool", Operation: "cal"}, []byte(`{}`))
}

func TestSelection(t *testing.T) {
	hash := func(args string, sel Selection) Hash {
		t.Helper()
		return hashOf(Scope{}, []byte(args), sel)
	}
	equal := func(a, b string, sel Selection, want bool) {
		t.Helper()
		if got := hash(a, sel) == hash(b, sel); got != want {
			t.Errorf("%v: %s and %s equal: %v", sel, a, b, got)
		}
	}
	ignore := Selection{Except: []Path{{"reason"}, {"trace", "id"}}}
	equal(`{"a":1,"reason":"x","trace":{"id":1,"k":2}}`, `{"trace":{"k":2},"a":1}`, ignore, true)
	equal(`{"a":1,"trace":{"id":1}}`, `{"a":1}`, ignore, false) // {} is not absent
	equal(`{"a":{"reason":1}}`, `{"a":{}}`, ignore, false)      // the path is from the root
	equal(`{"trace":[{"id":1}]}`, `{"trace":[{}]}`, ignore, false)
	equal(`{"\u0072eason":"x"}`, `{}`, ignore, true)
	bind := Selection{Only: []Path{{"amount"}, {"to", "iban"}}}
	equal(`{"amount":1,"title":"x","to":{"iban":"i","name":"n"}}`, `{"to":{"iban":"i"},"amount":1.0}`, bind, true)
	equal(`{"amount":1}`, `{"amount":2}`, bind, false)
	equal(`{"amount":1}`, `{}`, bind, false)
	equal(`{"to":{"iban":"i"}}`, `{"to":{"iban":"j"}}`, bind, false)
	equal(`{"to":"i"}`, `{"to":"j"}`, bind, false)
	equal(`{"amount":{"x":{"y":1}}}`, `{"amount":{"x":{"y":2}}}`, bind, false) // all below it
	equal(`{"x":{"amount":1}}`, `{"x":{"amount":2}}`, bind, true)
	both := Selection{Only: []Path{{"to"}}, Except: []Path{{"to", "key"}, {"key"}}}
	equal(`{"to":{"key":1,"iban":2},"key":3}`, `{"to":{"iban":2}}`, both, true)
	equal(`{"to":{"iban":1}}`, `{"to":{"iban":2}}`, both, false)
	equal(`{"a":1}`, `{"a":2}`, Selection{Only: []Path{{}}}, false) // the whole
}

func TestFind(t *testing.T) {
	args := []byte(`{"a":{"b":[1, 2.50],"":"e"},"\u0061b":"x\u006c","n":null,"l":[{"a":1}]}`)
	for _, c := range []struct {
		path Path
		want string
	}{
		{nil, string(args)}, {Path{"a", "b"}, `[1, 2.50]`}, {Path{"a", ""}, `"e"`}, {Path{"ab"}, `"x\u006c"`}, {Path{"n"}, `null`},
		{Path{"z"}, ``}, {Path{"n", "x"}, ``}, {Path{"l", "a"}, ``}, {Path{"a", "b", "c"}, ``},
	} {
		v, ok, err := Find(args, c.path)
		if err != nil || ok != (c.want != "") || string(v) != c.want {
			t.Errorf("Find(%q) = %s, %v, %v", c.path, v, ok, err)
		}
	}
	for _, bad := range []string{``, `{`, `{"a`, `{"b":tru}`} {
		if _, ok, err := Find([]byte(bad), Path{"a"}); ok || !errors.Is(err, ErrInvalidArguments) {
			t.Errorf("Find in %q: %v, %v", bad, ok, err)
		}
	}
}

func hashOf(s Scope, args []byte, sel Selection) Hash {
	h, err := HashRequest(s, args, sel)
	if err != nil {
		panic(err)
	}
	return h
}
