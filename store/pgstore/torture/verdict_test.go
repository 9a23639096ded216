package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// settled waits until the hosts have nothing left to find out, and returns every
// record.
func settled(t *testing.T, st idem.Store) []*idem.Record {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		records := list(t, st)
		var open *idem.Record
		for _, r := range records {
			switch r.State {
			case idem.StateStarted, idem.StateUnknown, idem.StatePlanned:
				open = r
			}
		}
		if open == nil {
			return records
		}
		if time.Now().After(end) {
			t.Fatalf("never settled: %s", show(open))
		}
	}
}

func list(t *testing.T, st idem.Store) (all []*idem.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q := idem.Query{Order: idem.ByID, Limit: 1000}
	for {
		page, err := st.List(ctx, q)
		must(t, err)
		all = append(all, page.Records...)
		if page.Next == nil {
			return all
		}
		q.After = page.Next
	}
}

// reload reads every row that the history knows once more, as the last of all
// that was read.
func (h *history) reload(t *testing.T, st idem.Store) {
	t.Helper()
	refs := map[string]idem.Ref{}
	note := func(rows []row) {
		for _, r := range rows {
			id, ok := idem.ParseID(r.Ref[2:])
			if !ok {
				t.Fatalf("no id: %s", r.Ref)
			}
			refs[r.Ref] = idem.Ref{Kind: r.Kind, ID: id}
		}
	}
	for _, c := range h.commits {
		note(c.rows)
	}
	for _, l := range h.reads {
		note(l.rows)
	}
	l := reading{host: 1000, from: now(), snapshot: true}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := st.Load(ctx, slices.Collect(maps.Values(refs))...)
	must(t, err)
	l.to = now()
	for _, ref := range refs {
		l.rows = append(l.rows, read(ref, s.Row(ref)))
	}
	h.reads = append(h.reads, l)
}

// judge compares what the ledger says in the end, and what hosts were answered,
// with what the shop did:
//
//  5. an operation has at most one effect, and so has what a name stands for;
//  6. COMMITTED means an effect, and proven absence none;
//  7. nobody is told of another effect than the operation's.
func (h *history) judge(records []*idem.Record, effects []effect) (bad []string) {
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	byKey, byName := map[string][]effect{}, map[string][]effect{}
	for _, e := range effects {
		byKey[e.Key] = append(byKey[e.Key], e)
		if e.Name != "" {
			byName[e.Name] = append(byName[e.Name], e)
		}
	}
	for name, es := range byName {
		if len(es) > 1 {
			fail("%q has %d effects: %+v", name, len(es), es)
		}
	}
	known := map[string]bool{}
	for _, r := range records {
		key := r.Op.String()
		known[key] = true
		n := len(byKey[key])
		absent := r.State == idem.StateFailedRetryable || (r.State == idem.StateFailedFinal && r.Absence == idem.AbsenceProven)
		if n > 1 || (n == 0 && r.State == idem.StateCommitted) || (n > 0 && absent) || r.Duplicates > 0 {
			fail("%d effects: %s", n, show(r))
		}
	}
	for key := range byKey {
		if !known[key] {
			fail("effects of an operation that is not in the ledger: %+v", byKey[key])
		}
	}
	for _, a := range h.answers {
		if es := byKey[a.op]; a.result != failure && (len(es) == 0 || a.result != string(es[0].receipt())) {
			fail("%s: host %d was answered %s, the effects are %+v", a.op, a.host, a.result, es)
		}
	}
	return bad
}

func show(r *idem.Record) string {
	return fmt.Sprintf("%s %s version %d, %s, reason %q, absence %q, %q, fence %d, reconcile %+v, attempts %+v",
		r.Scope.Tool, r.Op, r.Version, r.State, r.Reason, r.Absence, r.Text, r.Lease.Fence, r.Reconcile, r.Attempts)
}
