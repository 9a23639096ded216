package archive

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	idem "github.com/mcp-idem/mcp-idem"
)

const clock = idem.Instant(1_700_000_000_123_456_789)

// rows is one row of every kind and a second operation.
func rows() []idem.Row {
	op := func(n byte, v idem.Version) idem.Row {
		return idem.Row{Ref: idem.Ref{Kind: idem.KindOperation, ID: idem.ID{n}}, Version: v, Operation: &idem.Record{
			Scope: idem.Scope{Tenant: "acme", Tool: "tickets/create", Operation: "call"}, Source: idem.SourceHost, Key: "k",
			State: idem.StateCommitted, Args: []byte(`{"n":9007199254740993}`), Text: "\xff", Version: v, Last: 1,
			Attempts: []idem.Attempt{{N: 1, Start: clock, Class: idem.ClassSuccess}},
		}}
	}
	ref := func(k idem.Kind) idem.Ref { return idem.Ref{Kind: k, ID: idem.ID{9}} }
	return []idem.Row{
		op(1, 3), op(2, 1<<60),
		{Ref: ref(idem.KindKey), Version: 1, Key: &idem.KeyRow{Generation: 2}},
		{Ref: ref(idem.KindSlot), Version: 7, Slot: &idem.Slot{N: 3, Open: []idem.ID{{1}}}},
		{Ref: ref(idem.KindDelivery), Version: 2, Delivered: &idem.Delivered{Upto: 2, Extra: []uint64{5}}},
		{Ref: ref(idem.KindAlias), Version: 1, Alias: &idem.Alias{Operation: idem.ID{1}}},
		{Ref: ref(idem.KindCommand), Version: 1, Command: &idem.CommandRow{Operation: idem.ID{1}, Verb: "committed", Version: 3, At: clock}},
		{Ref: ref(idem.KindTask), Version: 4, Task: &idem.TaskRow{Tenant: "acme", Task: "order-17", Notes: []idem.Note{{Kind: "ref", Name: "pr", Value: "42"}}}},
	}
}

func mustWrite(t testing.TB, rows ...idem.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := w.Row(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(clock); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for _, want := range [][]idem.Row{rows(), nil} {
		text := mustWrite(t, want...)
		var got []idem.Row
		for row, err := range NewReader(bytes.NewReader(text)).Rows() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, row)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("differs (-want +got):\n%s", d)
		}
		s, err := Check(bytes.NewReader(text))
		if err != nil || s.Rows != len(want) || s.Clock != clock || len(s.SHA256) != 64 {
			t.Fatalf("%+v, error %v", s, err)
		}
	}
}

// TestFormat holds the format still: files are kept, and read by later versions.
func TestFormat(t *testing.T) {
	golden := filepath.Join("testdata", "v1.jsonl")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustWrite(t, rows()...); !bytes.Equal(got, want) {
		t.Fatalf("this is not format version %d as in %s:\n%s", formatVersion, golden, got)
	}
}

func TestEveryKindHasAName(t *testing.T) {
	names := map[string]bool{}
	for _, k := range idem.Kinds() {
		names[kinds[k]] = true
		if got, ok := kindOf(kinds[k]); !ok || got != k {
			t.Errorf("kind %d is read back as %d", k, got)
		}
	}
	if len(names) != len(idem.Kinds()) || len(kinds) != len(names) || names[""] {
		t.Fatalf("names %v", names)
	}
}

func TestDamage(t *testing.T) {
	text := string(mustWrite(t, rows()...))
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	lines[len(lines)-1] += "\n"
	last := len(lines)
	join := func(lines ...string) string { return strings.Join(lines, "") }
	swapped := append([]string(nil), lines...)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	other := strings.SplitAfter(string(mustWrite(t, rows()[:6]...)), "\n")
	for name, bad := range map[string]struct {
		text string
		line int
		says string
	}{
		"empty":                    {"", 1, "not an export"},
		"a ledger's file":          {"\x00\x00\x00\x00\xed\xda\x0c\xed", 1, "not an export"},
		"other JSON":               {"{}\n", 1, "not an export"},
		"no line end":              {strings.TrimSuffix(lines[0], "\n"), 1, "not an export"},
		"newer":                    {strings.Replace(text, `"version":1,`, `"version":2,"more":{},`, 1), 1, "use a newer one"},
		"older than the first":     {strings.Replace(text, `"version":1,`, `"version":0,`, 1), 1, "changed"},
		"header only":              {lines[0], 2, "ends before"},
		"cut in a row":             {text[:len(lines[0])+30], 2, "ends before"},
		"cut after a row":          {join(lines[:4]...), 5, "ends before"},
		"cut in the trailer":       {text[:len(text)-5], last, "ends before"},
		"cut of the line end":      {text[:len(text)-1], last, "ends before"},
		"a row is missing":         {join(append(append([]string(nil), lines[:3]...), lines[4:]...)...), last - 1, "removed"},
		"a row twice":              {join(append(append([]string(nil), lines[:3]...), lines[2:]...)...), 4, "twice"},
		"sorted anew":              {join(swapped...), 3, "order"},
		"the trailer first":        {join(lines[0], lines[last-1], lines[1]), 2, "removed"},
		"another's trailer":        {join(append(append([]string(nil), lines[:last-1]...), other[len(other)-2])...), last, "changed"},
		"two in one file":          {text + text, last + 1, "follows"},
		"an empty line at the end": {text + "\n", last + 1, "follows"},
		"white space":              {strings.Replace(text, `,"id"`, `, "id"`, 1), 2, "changed"},
		"other line ends":          {strings.ReplaceAll(text, "\n", "\r\n"), 1, "changed"},
		"an unknown kind":          {strings.Replace(text, `"kind":"key"`, `"kind":"lock"`, 1), 4, "unknown"},
		"an unknown field":         {strings.Replace(text, `{"kind":"key"`, `{"kind":"key","more":1`, 1), 4, "changed"},
		"another version":          {strings.Replace(text, `"version":7`, `"version":8`, 1), 5, "changed"},
		"another id":               {strings.Replace(text, rows()[0].Ref.ID.String(), idem.ID{1, 1}.String(), 1), 2, "checksum"},
		"more rows":                {strings.Replace(text, `"rows":8`, `"rows":9`, 1), last, "changed"},
		"another clock":            {strings.Replace(text, `"clock":"2023`, `"clock":"2024`, 1), last, "changed"},
	} {
		_, err := Check(strings.NewReader(bad.text))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Line != bad.line || !strings.Contains(e.Error(), bad.says) {
			t.Errorf("%s: error %v, want line %d: …%s…", name, err, bad.line, bad.says)
		}
	}
}

// No byte can change unseen.
func TestEveryByte(t *testing.T) {
	text := mustWrite(t, rows()...)
	for i := range text {
		flip := byte(1) << (i % 8)
		text[i] ^= flip
		if _, err := Check(bytes.NewReader(text)); err == nil {
			t.Fatalf("byte %d of %d changed by %#x is not seen", i, len(text), flip)
		}
		text[i] ^= flip
	}
}

func TestRowsAreRefused(t *testing.T) {
	for name, bad := range map[string]idem.Row{
		"twice":      rows()[1],
		"order":      rows()[0],
		"no content": {Ref: idem.Ref{Kind: idem.KindSlot}, Version: 1},
	} {
		w, err := NewWriter(&bytes.Buffer{}, "v")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Row(&rows()[1]); err != nil {
			t.Fatal(err)
		}
		if err := w.Row(&bad); err == nil {
			t.Errorf("%s: written", name)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(mustWrite(f, rows()...))
	f.Add(mustWrite(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Check(bytes.NewReader(text))
		if err != nil {
			return
		}
		// What is accepted is what this package writes.
		var b bytes.Buffer
		var h header
		if err := decode(text[:bytes.IndexByte(text, '\n')+1], &h); err != nil {
			t.Fatal(err)
		}
		w, err := NewWriter(&b, h.Program)
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range NewReader(bytes.NewReader(text)).Rows() {
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Row(&row); err != nil {
				t.Fatal(err)
			}
		}
		if again, err := w.Close(s.Clock); err != nil || again != s || !bytes.Equal(b.Bytes(), text) {
			t.Fatalf("accepted: %q\nis written as: %q (error %v)", text, b.Bytes(), err)
		}
	})
}
