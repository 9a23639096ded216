package storetest

import (
	"bytes"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// noise is text that nothing can shorten.
func noise(n int) string {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + rnd.IntN(90))
	}
	return string(b)
}

// oddTexts are what names can be: they come from clients, and from whoever
// writes a config. Some differ by little, or only behind a long beginning.
func oddTexts() []string {
	long := noise(9000)
	return []string{
		`quotes ' " and \ and \\`, `\x00`, "\x00", "a\x00b", "\xff\xfe", "\xc3", "é", "e\u0301", "\ufffd", "日本語 \U0001f600", "line\r\n\tend",
		"NULL", "null", `""`, "{a,b}", "$1", "%s%_*", " ", "a ", long, long + "1", long + "2", strings.Repeat("é", 5000), strings.Repeat("\x00", 5000),
	}
}

// oddIDs are ids with bytes that a text would have to escape, at both ends of
// the order.
func oddIDs() []idem.ID {
	var ones, mixed, quotes idem.ID
	for i := range ones {
		ones[i] = 0xff
		mixed[i] = []byte{0, '\\', '"', 0xff, '\'', '{', ',', '}', '\n', 'x'}[i%10]
		quotes[i] = '"'
	}
	return []idem.ID{{}, {19: 1}, mixed, {0: 1}, quotes, ones} // in order
}

func (s suite) texts(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"odd names":    oddNames,
		"odd ids":      oddRows,
		"odd contents": oddContents,
		"large rows":   largeRows,
	})
}

// oddNames: operations are found by the names that they have, and by no other.
func oddNames(_ *testing.T, k kit) {
	texts := oddTexts()
	all := make([]string, len(texts))
	for n, text := range texts {
		all[n] = fmt.Sprint(n)
		r := due(all[n], 5)
		r.Scope.Tenant, r.Task = text, text
		r.Scope.Tool = text + "/tool"
		r.State = idem.State(text)
		k.mustCommit(puts(put(num(n), r)))
		got := k.mustRecord(num(n))
		r.Version = 1
		k.equal(got, r)
	}
	for n, text := range texts {
		own := []string{all[n]}
		k.equal(k.keys(idem.Query{Order: idem.ByTask, Tenant: text, Task: text}), own)
		k.equal(k.keys(idem.Query{Order: idem.ByState, State: idem.State(text)}), own)
		k.equal(k.keys(idem.Query{Order: idem.ByDue, Tenant: text, Server: k.mustRecord(num(n)).Server(), Until: 9}), own)
		k.equal(k.keys(idem.Query{Tenant: text}), own)
	}
	got := k.keys(idem.Query{})
	slices.Sort(got)
	slices.Sort(all)
	k.equal(got, all)
}

func oddRows(_ *testing.T, k kit) {
	ids := oddIDs()
	for _, id := range ids {
		c := puts(put(id, record(id.String())),
			idem.Row{Ref: idem.Ref{Kind: idem.KindSlot, ID: id}, Slot: &idem.Slot{N: 1, Open: ids}},
			idem.Row{Ref: idem.Ref{Kind: idem.KindKey, ID: id}, Key: &idem.KeyRow{Generation: 1}})
		c.ID = idem.ChangeID(slices.Concat(id[:], id[:])[:16])
		for _, row := range c.Puts {
			c.Needs = append(c.Needs, need(row.Ref, 0))
		}
		k.mustCommit(c)
		k.mustConflict(c, "version")
	}
	var order []string
	for _, id := range ids {
		slot := idem.Ref{Kind: idem.KindSlot, ID: id}
		snap := k.mustLoad(slot, op(id))
		k.equal(snap.Row(slot), idem.Row{Ref: slot, Version: 1, Slot: &idem.Slot{N: 1, Open: ids}})
		k.equal(snap.Operation(id).Key, id.String())
		order = append(order, id.String())
	}
	k.equal(k.keys(idem.Query{Limit: 2}), order)
	// They join as twins, be they the first or not.
	for _, slot := range []idem.Ref{ref(idem.KindSlot, 1), ref(idem.KindSlot, 2)} {
		for _, id := range ids[1:] { // the zero id is no twin
			k.mustCommit(idem.Change{Marks: []idem.Mark{{Ref: slot, Twin: id}}})
		}
		k.equal(k.mustLoad(slot).Row(slot).Slot, &idem.Slot{Open: ids[1:]})
	}
	for _, id := range ids {
		k.mustCommit(idem.Change{Drops: []idem.Ref{op(id)}, Needs: []idem.Need{need(op(id), 1)}})
	}
	k.equal(k.keys(idem.Query{}), []string{})
}

// oddContents: what is stored in a record is anybody's.
func oddContents(_ *testing.T, k kit) {
	for n, text := range oddTexts()[:20] { // what is behind is only long
		r := record(text)
		r.Text, r.Result, r.ExternalID, r.Args = text, []byte(text), text, []byte(text)
		k.mustCommit(puts(put(num(n), r), idem.Row{Ref: ref(idem.KindCommand, n), Command: &idem.CommandRow{Verb: text}}))
		r.Version = 1
		snap := k.mustLoad(op(num(n)), ref(idem.KindCommand, n))
		k.equal(snap.Operation(num(n)), r)
		k.equal(snap.Row(ref(idem.KindCommand, n)).Command.Verb, text)
	}
}

// largeRows: what an answer may hold fits, and pages of a listing.
func largeRows(t *testing.T, k kit) {
	const size, count = 2 << 20, 2
	for n := range count {
		r := due(fmt.Sprint(n), idem.Instant(n+1))
		r.Result = make([]byte, size)
		_, _ = crand.Read(r.Result) // nothing can shorten it; it never fails
		k.mustCommit(puts(put(num(n), r)))
		if got := k.mustRecord(num(n)).Result; !bytes.Equal(got, r.Result) {
			t.Fatalf("row %d: %d bytes came back changed", n, len(got))
		}
	}
	k.equal(k.keys(idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets", Until: 50, Limit: 1}), []string{"0", "1"})
}
