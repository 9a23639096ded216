package checkpoint_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/checkpoint"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

func tasks(t *testing.T) checkpoint.Tasks {
	st := memstore.New(memstore.Config{})
	t.Cleanup(func() { _ = st.Close() })
	return checkpoint.Tasks{Store: st, Tenant: "acme"}
}

func mustRead(t *testing.T, ts checkpoint.Tasks, task string) *checkpoint.State {
	t.Helper()
	s, err := ts.Read(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, ts checkpoint.Tasks, n byte, task string, state idem.State, created idem.Instant) {
	t.Helper()
	id := idem.ID{n}
	c := idem.Change{ID: idem.ChangeID{n}, Needs: []idem.Need{{Ref: idem.Ref{Kind: idem.KindOperation, ID: id}}}, Puts: []idem.Row{{
		Ref: idem.Ref{Kind: idem.KindOperation, ID: id},
		Operation: &idem.Record{Op: id, Scope: idem.Scope{Tenant: ts.Tenant, Tool: "tickets/create", Operation: "call"}, State: state,
			Task: task, Step: fmt.Sprint(n), CreatedAt: created},
	}}}
	if _, err := ts.Store.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func steps(rs []*idem.Record) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Step)
	}
	return strings.Join(out, " ")
}

func TestRead(t *testing.T) {
	ts := tasks(t)
	if s := mustRead(t, ts, "nobody"); len(s.Operations)+len(s.Notes) != 0 {
		t.Errorf("%+v", s)
	}
	put(t, ts, 1, "t1", idem.StateCommitted, 30)
	put(t, ts, 2, "t1", idem.StateCommitted, 10)
	put(t, ts, 3, "t1", idem.StateNeedsReview, 20)
	put(t, ts, 4, "t1", idem.StateFailedFinal, 40)
	put(t, ts, 5, "t2", idem.StateCommitted, 50)
	other := ts
	other.Tenant = "other"
	put(t, other, 6, "t1", idem.StateCommitted, 60)
	for n := range byte(120) { // more than a page
		put(t, ts, 100+n, "t3", idem.StateCommitted, idem.Instant(n))
	}
	s := mustRead(t, ts, "t1")
	if got := steps(s.Completed()) + "|" + steps(s.Unsettled()) + "|" + steps(s.Failed()); got != "2 1|3|4" {
		t.Errorf("%s", got)
	}
	if n := len(mustRead(t, ts, "t3").Operations); n != 120 {
		t.Errorf("%d operations of 120", n)
	}
}

func TestNotes(t *testing.T) {
	ts := tasks(t)
	note := func(name, value string) idem.Note {
		return idem.Note{Kind: checkpoint.KindRef, Name: name, Value: value}
	}
	for _, n := range []idem.Note{note("pr", "41"), note("branch", "fix"), note("pr", "42"), note("pr", "42")} {
		if err := ts.Note(t.Context(), "t1", n); err != nil {
			t.Fatal(err)
		}
	}
	s := mustRead(t, ts, "t1")
	if len(s.Notes) != 2 || s.Notes[0].Value != "42" || s.Notes[1].Name != "branch" || s.Notes[0].At == 0 {
		t.Errorf("%+v", s.Notes)
	}
	snap, err := ts.Store.Load(t.Context(), idem.TaskRef("acme", "t1"))
	if v := snap.Row(idem.TaskRef("acme", "t1")).Version; err != nil || v != 3 {
		t.Errorf("version %d, error %v: the same again must change nothing", v, err)
	}
	if len(mustRead(t, ts, "t2").Notes) != 0 || len(mustRead(t, checkpoint.Tasks{Store: ts.Store, Tenant: "other"}, "t1").Notes) != 0 {
		t.Error("another task, or tenant, has them")
	}
}

func TestNotesThatAreRefused(t *testing.T) {
	ts := tasks(t)
	ok := idem.Note{Kind: checkpoint.KindNote, Name: "n", Value: "v"}
	long, wide, kind, nameless := ok, ok, ok, ok
	long.Name, wide.Value, kind.Kind, nameless.Name = strings.Repeat("x", checkpoint.MaxName+1), strings.Repeat("x", checkpoint.MaxValue+1), "other", ""
	for name, n := range map[string]idem.Note{"name": long, "value": wide, "kind": kind, "no name": nameless} {
		if err := ts.Note(t.Context(), "t1", n); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := ts.Note(t.Context(), "", ok); err == nil {
		t.Error("without a task: taken")
	}
	for i := range checkpoint.MaxNotes {
		n := ok
		n.Name = fmt.Sprint(i)
		if err := ts.Note(t.Context(), "t1", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := ts.Note(t.Context(), "t1", idem.Note{Kind: checkpoint.KindNote, Name: "more"}); !errors.Is(err, checkpoint.ErrLimit) {
		t.Errorf("one too many: %v", err)
	}
	if err := ts.Note(t.Context(), "t1", idem.Note{Kind: checkpoint.KindNote, Name: "3", Value: "new"}); err != nil {
		t.Errorf("an old one anew: %v", err)
	}
}

// TestNotesAtOnce loses none.
func TestNotesAtOnce(t *testing.T) {
	ts := tasks(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := ts.Note(t.Context(), "t1", idem.Note{Kind: checkpoint.KindNote, Name: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(mustRead(t, ts, "t1").Notes); n != 50 {
		t.Errorf("%d notes of 50", n)
	}
}
