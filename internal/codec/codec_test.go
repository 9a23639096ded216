package codec

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	idem "github.com/mcp-idem/mcp-idem"
)

func rowOf(rec *idem.Record) idem.Row {
	return idem.Row{Ref: idem.Ref{Kind: idem.KindOperation, ID: idem.ID{1}}, Version: 7, Operation: rec}
}

func mustSeal(t testing.TB, r idem.Row) []byte {
	t.Helper()
	b, err := Body(&r)
	if err != nil {
		t.Fatal(err)
	}
	return Seal(r.Ref, r.Version, b)
}

func sample() *idem.Record {
	return &idem.Record{
		Scope: idem.Scope{Tenant: "default", Tool: "tickets/create", Operation: "call"}, Source: idem.SourceHost, Key: "k",
		Generation: 1, Hash: idem.Hash{1, 2}, Args: []byte(`{"a":1}`), State: idem.StateStarted,
		Attempts: []idem.Attempt{{N: 1, Start: math.MaxInt64, Text: "caf\xe9 is not UTF-8", MayApplied: true}},
		Lease:    idem.Lease{Fence: math.MaxUint64, Token: idem.Token{9}, End: math.MinInt64},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := rapid.Make[idem.Record]().Draw(t, "record")
		rec.Version = 7
		row := rowOf(&rec)
		b, err := Body(&row)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Open(row.Ref, Seal(row.Ref, row.Version, b))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(row, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
		again, err := Body(&got)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("a second encoding differs: %v", err)
		}
	})
}

func TestEveryKindRoundTrips(t *testing.T) {
	rows := map[idem.Kind]idem.Row{
		idem.KindOperation: {Operation: sample()},
		idem.KindKey:       {Key: &idem.KeyRow{Generation: 3}},
		idem.KindSlot:      {Slot: &idem.Slot{N: 2, Floor: 1, Open: []idem.ID{{4}, {5}}}},
		idem.KindDelivery:  {Delivered: &idem.Delivered{Upto: 3, Extra: []uint64{7, 9}}},
		idem.KindAlias:     {Alias: &idem.Alias{Operation: idem.ID{6}}},
		idem.KindCommand:   {Command: &idem.CommandRow{Verb: "committed", Version: 2, At: 5}},
		idem.KindTask:      {Task: &idem.TaskRow{Tenant: "t", Task: "order-17", Notes: []idem.Note{{Kind: "ref", Name: "pr", Value: "42", Step: "s", Run: "r", At: 5}}}},
	}
	for _, k := range idem.Kinds() {
		r := rows[k]
		r.Ref, r.Version = idem.Ref{Kind: k, ID: idem.ID{1}}, 3
		got, err := Open(r.Ref, mustSeal(t, r))
		if err != nil {
			t.Fatalf("kind %d: %v", k, err)
		}
		if d := cmp.Diff(r, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(idem.Record{}, "Version")); d != "" {
			t.Errorf("kind %d: %s", k, d)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	good := mustSeal(t, rowOf(sample()))
	ref := rowOf(nil).Ref
	bad := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
	for name, tc := range map[string]struct {
		ref  idem.Ref
		b    []byte
		want string
	}{
		"empty":          {ref, nil, "shorter than a header"},
		"zeroed":         {ref, bad(func(b []byte) []byte { clear(b); return b }), "no format byte"},
		"newer format":   {ref, bad(func(b []byte) []byte { b[0] = 2; return b }), "format 2, this program reads 1"},
		"cut":            {ref, bad(func(b []byte) []byte { return b[:len(b)-1] }), "checksum"},
		"a damaged tail": {ref, bad(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), "checksum"},
		"other version":  {ref, bad(func(b []byte) []byte { b[8]++; return b }), "checksum"},
		"another's row":  {idem.Ref{Kind: ref.Kind, ID: idem.ID{2}}, good, "checksum"},
		"another's kind": {idem.Ref{Kind: idem.KindSlot, ID: ref.ID}, good, "checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(tc.ref, tc.b)
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want one about %q", err, tc.want)
			}
		})
	}
}

func TestUnmarshalRefusesDuplicatesAndSkipsUnknown(t *testing.T) {
	var k idem.KeyRow
	if err := Unmarshal([]byte{0xa2, 1, 1, 1, 2}, &k); !errors.Is(err, ErrMalformed) {
		t.Errorf("a field that occurs twice: error %v", err)
	}
	newer, err := cbor.Marshal(map[int]any{1: 4, 99: "of a later version"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Unmarshal(newer, &k); err != nil || k.Generation != 4 {
		t.Errorf("an unknown field: generation %d, error %v", k.Generation, err)
	}
	if err := Unmarshal([]byte{0xa1, 1, 1, 0}, &k); !errors.Is(err, ErrMalformed) {
		t.Errorf("trailing bytes: error %v", err)
	}
}

func TestCheckWantsOneContent(t *testing.T) {
	two := rowOf(sample())
	two.Slot = &idem.Slot{}
	for name, r := range map[string]idem.Row{
		"none": rowOf(nil), "two": two,
		"another": {Ref: idem.Ref{Kind: idem.KindKey}, Slot: &idem.Slot{}},
		"kind 0":  {Slot: &idem.Slot{}},
	} {
		if err := Check(&r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzOpen: decoding never panics, and what it accepts has one encoding.
func FuzzOpen(f *testing.F) {
	b, err := Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(idem.KindOperation), b)
	f.Add(uint8(idem.KindSlot), []byte{0xa1, 1, 2})
	f.Add(uint8(idem.KindDelivery), []byte{0xa1, 2, 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(idem.KindOperation), []byte{0xbf, 0xff})
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		ref := idem.Ref{Kind: idem.Kind(kind), ID: idem.ID{kind}}
		_, _ = Open(ref, body)
		r, err := Open(ref, Seal(ref, 1, body))
		if err != nil {
			return
		}
		first, err := Body(&r)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		r2, err := Open(ref, Seal(ref, 1, first))
		if err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
		second, err := Body(&r2)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("the encoding is not stable: %x, %x, %v", first, second, err)
		}
	})
}
