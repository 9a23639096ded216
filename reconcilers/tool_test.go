package reconcilers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/policy"
)

func jq(text string) *policy.JQ {
	if text == "" {
		return nil
	}
	q, err := policy.Compile(text)
	if err != nil {
		panic(err)
	}
	return q
}

// upstream answers every query alike and remembers what it was asked.
type upstream struct {
	result string
	err    error
	asked  []string
}

func (u *upstream) call(_ context.Context, q idem.Lookup, tool string, args []byte) ([]byte, error) {
	server := q.Record.Server()
	u.asked = append(u.asked, server+"/"+tool+" "+string(args))
	return []byte(u.result), u.err
}

const items = `{"content":[],"structuredContent":{"items":[{"id":"T-1","n":9007199254740993},{"id":null},{"id":"T-1"}],"none":[]}}`

func lookup() idem.Lookup {
	return idem.Lookup{Key: "k1", BusinessKey: "o1", Record: &idem.Record{
		Scope: idem.Scope{Tool: "tickets/create_ticket"}, Task: "t1", Args: []byte(`{"order_id":"o1","amount":9007199254740993}`)}}
}

func TestFunc(t *testing.T) {
	want := idem.Finding{IDs: []string{"x"}}
	var r idem.Reconciler = Func(func(_ context.Context, q idem.Lookup) (idem.Finding, error) { return want, errors.New(q.Key) })
	if got, err := r.Query(context.Background(), lookup()); !cmp.Equal(got, want) || err == nil || err.Error() != "k1" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestArguments(t *testing.T) {
	for text, want := range map[string]string{
		``:                             `{}`,
		`{external_reference: $key}`:   `{"external_reference":"k1"}`,
		`{o: $business_key, $task}`:    `{"o":"o1","task":"t1"}`,
		`{a: $args.amount, s: $step}`:  `{"a":9007199254740993,"s":null}`,
		`{q: "ref = '\($key)'"}`:       `{"q":"ref = 'k1'"}`,
		`{x: $external_id, y: .input}`: `{"x":null,"y":null}`,
	} {
		u := &upstream{result: items}
		if _, err := (&Tool{Call: u.call, Name: "search", Arguments: jq(text), Found: jq(`empty`)}).Query(context.Background(), lookup()); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !cmp.Equal(u.asked, []string{"tickets/search " + want}) {
			t.Errorf("%s asked %s, want %s", text, u.asked, want)
		}
	}
	for _, bad := range []string{`[$key]`, `{}, {}`, `empty`, `$key`, `{a: ($key | tonumber)}`} {
		u := &upstream{result: items}
		if f, err := (&Tool{Call: u.call, Name: "search", Arguments: jq(bad), Found: jq(`empty`)}).Query(context.Background(), lookup()); err == nil || u.asked != nil {
			t.Errorf("%s: %v, asked %v", bad, f, u.asked)
		}
	}
}

func TestBusinessKeyKeepsItsType(t *testing.T) {
	u := &upstream{result: items}
	tool := &Tool{Call: u.call, Name: "s", Arguments: jq(`{$business_key}`), Found: jq(`empty`), BusinessKey: jq(`.amount`)}
	q := lookup()
	q.BusinessKey = "9007199254740993"
	if _, err := tool.Query(context.Background(), q); err != nil || u.asked[0] != `tickets/s {"business_key":9007199254740993}` {
		t.Errorf("%s, %v", u.asked, err)
	}
	q.Record.Args = []byte(`{}`)
	if f, err := tool.Query(context.Background(), q); err == nil {
		t.Errorf("the key is gone, yet it asks: %v, %s", f, u.asked)
	}
}

func TestFound(t *testing.T) {
	long := strings.Repeat("x", 65)
	for text, want := range map[string][]string{
		`[.structuredContent.items[].id]`:            {"T-1"}, // nulls do not count, nor the same id again
		`.structuredContent.items[].id`:              {"T-1"},
		`.structuredContent.items[].n`:               {"9007199254740993"},
		`[.structuredContent.items[] | {id}]`:        {`{"id":"T-1"}`, `{"id":null}`},
		`.structuredContent.none`:                    nil,
		`.nope`:                                      nil,
		`empty`:                                      nil,
		`"", 1.0, 1`:                                 {"", "1"},
		`"` + long + `"`:                             {"sha256:"},
		`[.structuredContent.items[] | .id, .n] | .`: {"T-1", "9007199254740993"},
		`[1], [2]`:                                   {"[1]", "[2]"},
		`.structuredContent.items[] | select($key == "k1") | .id`: {"T-1"},
	} {
		u := &upstream{result: items}
		f, err := (&Tool{Call: u.call, Found: jq(text)}).Query(context.Background(), lookup())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if len(want) == 1 && strings.HasPrefix(want[0], "sha256:") {
			if len(f.IDs) != 1 || len(f.IDs[0]) != 71 || f.IDs[0][:7] != "sha256:" {
				t.Errorf("%s found %q", text, f.IDs)
			}
		} else if !cmp.Equal(f.IDs, want) {
			t.Errorf("%s found %q, want %q", text, f.IDs, want)
		}
		if (f.Result == nil) != (len(want) == 0) {
			t.Errorf("%s: result %q", text, f.Result)
		}
	}
}

// A query that failed is never an empty finding.
func TestFailedQuery(t *testing.T) {
	for name, u := range map[string]*upstream{
		"error": {err: errors.New("closed")}, "error beside a result": {result: items, err: errors.New("x")},
		"isError": {result: `{"isError":true,"content":[]}`}, "null": {result: `null`}, "absent": {result: ``}, "no content": {result: `{"structuredContent":{"items":[]}}`},
		"null content": {result: `{"content":null}`}, "unparsable": {result: `{"content":[]`}, "interim": {result: `{"resultType":"input_required"}`},
		"duplicate names": {result: `{"content":[],"structuredContent":{"items":[],"items":[]}}`},
	} {
		f, err := (&Tool{Call: u.call, Found: jq(`.structuredContent.items[]?`)}).Query(context.Background(), lookup())
		if err == nil || f.IDs != nil || f.Result != nil {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	for _, text := range []string{`.structuredContent.items[].id.x`, `.content.items`, `"a", error("x")`, `true`, `[false]`, `.content == []`} {
		u := &upstream{result: items}
		if f, err := (&Tool{Call: u.call, Found: jq(text)}).Query(context.Background(), lookup()); err == nil || f.IDs != nil {
			t.Errorf("%s: %v, %v", text, f, err)
		}
	}
	u := &upstream{result: items}
	q := lookup()
	q.Record.Args = []byte(`{"a":1,"a":2}`)
	if f, err := (&Tool{Call: u.call, Found: jq(`1`)}).Query(context.Background(), q); err == nil {
		t.Errorf("bad arguments: %v", f)
	}
}

func TestResult(t *testing.T) {
	odd := "{ \"content\" : [ ] ,\"structuredContent\":{\"n\":1.0, \"id\":\"\\u0041\"}}"
	for text, want := range map[string]string{
		``: odd, `.`: odd, ` . # all`: odd, // byte for byte
		`{content: [], structuredContent: {n: .structuredContent.n}}`: `{"content":[],"structuredContent":{"n":1.0}}`,
		`.structuredContent`:    `{"content":[{"text":"{\"id\":\"A\",\"n\":1.0}","type":"text"}],"structuredContent":{"id":"A","n":1.0}}`,
		`.structuredContent.id`: `{"content":[{"text":"A","type":"text"}]}`,
	} {
		u := &upstream{result: odd}
		f, err := (&Tool{Call: u.call, Found: jq(`1`), Result: jq(text)}).Query(context.Background(), lookup())
		if err != nil || string(f.Result) != want {
			t.Errorf("%s: %s, %v; want %s", text, f.Result, err, want)
		}
	}
	u := &upstream{result: odd}
	if f, err := (&Tool{Call: u.call, Found: jq(`1`), Result: jq(`.content.x`)}).Query(context.Background(), lookup()); err == nil {
		t.Errorf("a failing result: %v", f)
	}
}
