package idem

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

func fuzzSeeds(f *testing.F) {
	for _, c := range refusals {
		f.Add([]byte(c.in), uint64(1))
	}
	for _, s := range []string{
		benchArgs, `{}`, `null`, `[1,1.0,-0,1e2,100,9007199254740993]`, `{"a":1e308,"b":1e-308,"c":0e999}`,
		`{"\u006frder_id":"o1","z":{"b":null,"a":{}}}`, `"\ud83d\ude00"`, `{"ﬀ":1,"😀":2}`, `[[],{},"",0,false]`, `"e\u0301 \u2028 \u007f"`,
	} {
		f.Add([]byte(s), uint64(7))
	}
}

// FuzzCanonical holds, for any input:
//  1. nothing panics, and what is refused is INVALID_ARGUMENTS;
//  2. the canonical form is JSON and its own canonical form;
//  3. the input in any other spelling has the same canonical form;
//  4. canonical forms are equal exactly where a slow reference, which knows
//     numbers as rationals, says that the values are.
func FuzzCanonical(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		got, err := Canonical(in)
		if err != nil {
			if CodeOf(err) != CodeInvalidArguments {
				t.Fatalf("error %v", err)
			}
			return
		}
		again, err := Canonical(got)
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("Canonical(%q) = %q, then %q, %v", in, got, again, err)
		}
		r := &respeller{rand.New(rand.NewPCG(seed, 1))}
		other := r.spell(nil, tree(t, in))
		if re, err := Canonical(other); err != nil || !bytes.Equal(re, got) {
			t.Fatalf("%q\nspelled %q\n%q\n%q, %v", in, other, got, re, err)
		}
		value := reference(tree(t, in))
		changed, ok := r.change(tree(t, in))
		if !ok {
			return
		}
		text := r.spell(nil, changed)
		form, err := Canonical(text)
		if err != nil {
			return // changed into something beyond the limits
		}
		if same := reference(changed) == value; same != bytes.Equal(form, got) {
			t.Fatalf("%q and %q: equal values %v, equal forms %v", in, text, same, !same)
		}
	})
}

// FuzzHashRequest: a selection neither panics nor lets a bad request through,
// and the hash does not depend on the spelling.
func FuzzHashRequest(f *testing.F) {
	fuzzSeeds(f)
	sels := []Selection{{}, {Except: []Path{{"a"}, {"customer", "id"}}}, {Only: []Path{{"a"}, {"customer", "id"}}}}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		_, bad := HashRequest(Scope{Tool: "t"}, in, Selection{})
		for _, sel := range sels {
			h, err := HashRequest(Scope{Tool: "t"}, in, sel)
			if (err == nil) != (bad == nil) {
				t.Fatalf("%q: %v with %v, %v without", in, err, sel, bad)
			}
			if err != nil {
				continue
			}
			r := &respeller{rand.New(rand.NewPCG(seed, 2))}
			if other := r.spell(nil, tree(t, in)); hashOf(Scope{Tool: "t"}, other, sel) != h {
				t.Fatalf("%q and %q: two hashes with %v", in, other, sel)
			}
		}
	})
}

// tree is a value by encoding/json, which is good enough once duplicates and
// bad UTF-8 are refused.
func tree(t *testing.T, in []byte) any {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("accepted %q, which encoding/json refuses: %v", in, err)
	}
	return v
}

// reference writes a value so that equal values, and only they, are equal:
// numbers as fractions, strings as UTF-16.
func reference(v any) string {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(clampExponent(string(v)))
		if !ok {
			panic("no number: " + string(v))
		}
		return r.String()
	case string:
		return "s" + utf16Text(v)
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, reference(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		var parts []string
		for k, e := range v {
			parts = append(parts, utf16Text(k)+":"+reference(e))
		}
		sort.Strings(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}

// clampExponent spares big.Rat the powers that only a zero may carry.
func clampExponent(n string) string {
	m, _, _ := strings.Cut(strings.ToLower(n), "e")
	if strings.Trim(m, "-0.") == "" {
		return "0"
	}
	return n
}

func utf16Text(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		b.WriteString(strconv.FormatUint(uint64(u), 16))
		b.WriteByte('.')
	}
	return b.String()
}

// respeller writes values in random spellings.
type respeller struct{ *rand.Rand }

func (r *respeller) space(dst []byte) []byte {
	return append(dst, []string{"", "", " ", "\n\t", "\r"}[r.IntN(5)]...)
}

func (r *respeller) spell(dst []byte, v any) []byte {
	dst = r.space(dst)
	switch v := v.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		dst = strconv.AppendBool(dst, v)
	case string:
		dst = r.str(dst, v)
	case json.Number:
		dst = append(dst, r.number(string(v))...)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.spell(dst, e)
		}
		dst = append(r.space(dst), ']')
	case map[string]any:
		dst = append(dst, '{')
		first := true
		for k, e := range v { // in map order, which is random
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(r.space(r.str(r.space(dst), k)), ':')
			dst = r.spell(dst, e)
		}
		dst = append(r.space(dst), '}')
	}
	return r.space(dst)
}

func (r *respeller) str(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		if r.IntN(3) > 0 {
			q, err := jsontext.AppendQuote(nil, string(c))
			if err != nil {
				panic(err)
			}
			dst = append(dst, q[1:len(q)-1]...)
			continue
		}
		for _, u := range utf16.Encode([]rune{c}) {
			h := strconv.FormatUint(0x10000+uint64(u), 16)[1:]
			if r.IntN(2) == 0 {
				h = strings.ToUpper(h)
			}
			dst = append(append(dst, `\u`...), h...)
		}
	}
	return append(dst, '"')
}

// number moves the point of a number and makes up for it in the exponent.
func (r *respeller) number(n string) string {
	sign := ""
	if n[0] == '-' {
		sign, n = "-", n[1:]
	}
	mant, e, _ := strings.Cut(strings.ToLower(n), "e")
	exp, err := strconv.ParseInt(strings.TrimPrefix(e, "+"), 10, 64)
	if e != "" && err != nil {
		return sign + n // only a zero carries such an exponent
	}
	whole, frac, _ := strings.Cut(mant, ".")
	digits, exp := whole+frac+strings.Repeat("0", r.IntN(3)), exp+int64(len(whole))
	at := r.IntN(len(digits) + 1)
	exp -= int64(at)
	head := strings.TrimLeft(digits[:at], "0")
	if head == "" {
		head = "0"
	}
	if at < len(digits) {
		head += "." + digits[at:]
	}
	if exp != 0 || r.IntN(2) == 0 {
		head += []string{"e", "E"}[r.IntN(2)] + strconv.FormatInt(exp, 10)
	}
	return sign + head
}

// change returns a copy of v in which one thing may be another.
func (r *respeller) change(v any) (any, bool) {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return nil, true
		}
		c, i := append([]any(nil), v...), r.IntN(len(v))
		var ok bool
		if c[i], ok = r.change(v[i]); !ok {
			return append(c[:i], c[i+1:]...), true
		}
		return c, true
	case map[string]any:
		c := map[string]any{}
		at, i := r.IntN(len(v)+1), 0
		for k, e := range v {
			if i == at {
				e, _ = r.change(e)
			}
			c[k] = e
			i++
		}
		if at == len(v) {
			c["\u0000new"] = nil
		}
		return c, true
	case json.Number:
		return json.Number([]string{string(v) + "0", "1" + strings.TrimLeft(string(v), "-0"), "0.10", "-0"}[r.IntN(4)]), !strings.ContainsAny(string(v), "eE.")
	case string:
		return v + []string{"", " ", "\u0301", "\x00"}[r.IntN(4)], true
	case bool:
		return !v, true
	}
	return "null", true
}
