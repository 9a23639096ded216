package mcp

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]struct {
		id, method, params, result, err string
		fails                           bool
	}{
		`{"jsonrpc":"2.0","id":"7","method":"a/b","params":{"x":1}}`: {id: `"7"`, method: "a/b", params: `{"x":1}`},
		`{"id":9007199254740993,"result":[1.0]}`:                     {id: `9007199254740993`, result: `[1.0]`},
		`{"id":1,"result":null}`:                                     {id: `1`, result: `null`},
		`{"id":-1.5e3,"error":{}}`:                                   {id: `-1.5e3`, err: `{}`},
		` { "method" : "tools\/call" , "id" : "a\"b" } `:             {id: `"a\"b"`, method: "tools/call"},
		`{"id":null,"method":"m"}`:                                   {method: "m"},
		"{\"id\":1,\"params\":{\"a\":\"\xff\",\"a\":\"\\ud800\"}}":   {id: "1", params: "{\"a\":\"\xff\",\"a\":\"\\ud800\"}"},
		`{"id":1,"result":{"a":`:                                     {id: "1", fails: true},
		`{"id":1} x`:                                                 {id: "1", fails: true},
		`{"id":1,"id":2}`:                                            {id: "2", fails: true},
		`{"id":true}`:                                                {id: "true", fails: true},
		`{"id":1,"method":5}`:                                        {id: "1", fails: true},
		`[]`:                                                         {fails: true},
		`7`:                                                          {fails: true},
	} {
		var p parser
		e, err := p.parse([]byte(line))
		if (err != nil) != want.fails {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, f := range []struct {
			name, got, want string
		}{{"id", string(e.rawID()), want.id}, {"method", e.method, want.method}, {"params", string(e.params.of(e.line)), want.params},
			{"result", string(e.result.of(e.line)), want.result}, {"error", string(e.errObj.of(e.line)), want.err}} {
			if f.got != f.want {
				t.Errorf("%s: %s is %s, want %s", line, f.name, f.got, f.want)
			}
		}
	}
}

func TestBrokenAnswerStillHasItsID(t *testing.T) {
	for line, open := range map[string]string{
		`{"jsonrpc":"2.0","id":5,"result":{"content":[{"ty`: `"result"`,
		`{"jsonrpc":"2.0","id":5,"result":`:                 `"result"`,
		`{"jsonrpc":"2.0","id":5,"error":{"code":`:          `"error"`,
		`{"jsonrpc":"2.0","id":5,"method":"x`:               `"method"`,
	} {
		var p parser
		e, err := p.parse([]byte(line))
		if err == nil || string(e.rawID()) != "5" || p.s.open != open {
			t.Errorf("%s: id %s, open %s, %v", line, e.rawID(), p.s.open, err)
		}
	}
}

func TestSetMembers(t *testing.T) {
	one := field{"k", []byte(`1`)}
	for object, want := range map[string]string{
		``:                                   `{"k":1}`,
		`null`:                               `{"k":1}`,
		`{}`:                                 `{"k":1}`,
		`{ }`:                                `{"k":1 }`,
		`{"a":1.0}`:                          `{"a":1.0,"k":1}`,
		` { "a" : 1 , "b" : [ ] } `:          ` { "a" : 1 , "b" : [ ],"k":1 } `,
		`{"k":"old"}`:                        `{"k":1}`,
		`{"k":"old","b":2}`:                  `{"b":2,"k":1}`,
		`{"k":0, "b":2, "k":3}`:              `{ "b":2,"k":1}`,
		`{"a":1,"k":{"k":0},"b":2}`:          `{"a":1,"b":2,"k":1}`,
		`{"a":1,"\u006b":0}`:                 `{"a":1,"k":1}`,
		"{\"a\":\"\xff\",\"a\":\"\\ud800\"}": "{\"a\":\"\xff\",\"a\":\"\\ud800\",\"k\":1}",
	} {
		got, err := setMembers([]byte(object), one)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", object, got, err, want)
		}
	}
	if got, err := setIn([]byte(`{"x":1,"_meta":{"a":0}}`), "_meta", one, field{"l", []byte(`"m"`)}); string(got) != `{"x":1,"_meta":{"a":0,"k":1,"l":"m"}}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := setMembers([]byte(`{"a":`), one); err == nil {
		t.Error("a cut object is extended")
	}
}

// FuzzSplice: whatever object comes, setting a member keeps every other member
// to the byte, and the result is valid where the object was.
func FuzzSplice(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1.0,"_meta":{"k":2}}`, `{"_meta":null}`, "{\"a\":\"\xff\"}", `{"k":1,"k":2}`, ` { "k" : [ ] , "b":{}} `, `{"a":`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var p parser
		_, _ = p.parse(object)
		before, err := gather(object)
		if err != nil {
			_, _ = setIn(object, "_meta", field{"k", []byte("1")})
			return
		}
		out, err := setMembers(object, field{"k", []byte(`"v"`)})
		if err != nil {
			t.Fatalf("%q: %v", object, err)
		}
		after, err := gather(out)
		if err != nil {
			t.Fatalf("%q became %q: %v", object, out, err)
		}
		before[`"k"`] = []byte(`"v"`)
		if len(after) != len(before) {
			t.Fatalf("%q became %q", object, out)
		}
		for name, v := range before {
			if !bytes.Equal(after[name], v) {
				t.Fatalf("%q became %q: %s is %q", object, out, name, after[name])
			}
		}
		if json.Valid(object) && !json.Valid(out) {
			t.Fatalf("%q became %q", object, out)
		}
	})
}

// FuzzLine: an envelope's parts are where it says, and the id can be replaced
// without touching the rest.
func FuzzLine(f *testing.F) {
	for _, s := range []string{initLine, `{"id":"7","method":"m"}`, `{"id":1,"result":{"a":`, `[{}]`, `{"id":1,"id":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p parser
		e, err := p.parse(line)
		if err != nil || !e.id.there() {
			return
		}
		out := splice(line, e.id, []byte("42"))
		back, err := p.parse(out)
		if err != nil || string(back.rawID()) != "42" || back.method != e.method {
			t.Fatalf("%q became %q: %v", line, out, err)
		}
		if !bytes.Equal(out[:e.id.from], line[:e.id.from]) || !bytes.Equal(out[e.id.from+2:], line[e.id.to:]) {
			t.Fatalf("%q became %q", line, out)
		}
	})
}
