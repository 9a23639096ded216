package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// due is an operation that a reconciler asks for at a moment.
func due(key string, at idem.Instant) *idem.Record {
	r := record(key)
	r.State = idem.StateUnknown
	r.Reconcile.Next = at
	return r
}

func (s suite) list(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"by id":              listByID,
		"by due":             listByDue,
		"due with marks":     listExtended,
		"by state":           listByState,
		"by task":            listByTask,
		"cursors":            listCursors,
		"cursors of another": func(_ *testing.T, k kit) { listForeignCursor(k) },
	})
}

func listByID(_ *testing.T, k kit) {
	var ids []idem.ID
	want := map[idem.ID]string{}
	for n := range 7 {
		ids = append(ids, num(n))
		want[num(n)] = fmt.Sprint(n)
		r := record(fmt.Sprint(n))
		if n == 3 {
			r.Scope.Tenant = "other"
		}
		k.mustCommit(puts(put(num(n), r)))
	}
	slices.SortFunc(ids, func(a, b idem.ID) int { return slices.Compare(a[:], b[:]) })
	var keys, acme []string
	for _, id := range ids {
		keys = append(keys, want[id])
		if want[id] != "3" {
			acme = append(acme, want[id])
		}
	}
	k.equal(k.keys(idem.Query{}), keys)
	k.equal(k.keys(idem.Query{Limit: 2}), keys)
	k.equal(k.keys(idem.Query{Tenant: "acme", Limit: 3}), acme)
	k.equal(k.keys(idem.Query{Tenant: "nobody"}), []string{})
	if p := k.mustList(idem.Query{}); p.Records[0].Version != 1 || p.Now == 0 {
		k.Fatalf("version %d, now %d", p.Records[0].Version, p.Now)
	}
}

func listByDue(_ *testing.T, k kit) {
	elsewhere, otherServer := due("tenant", 10), due("server", 10)
	elsewhere.Scope.Tenant = "acm"
	otherServer.Scope.Tool = "tickets2/create"
	quiet := record("quiet")
	expired := due("tombstone", 10)
	expired.Expired = true
	k.mustCommit(puts(put(num(1), due("late", 30)), put(num(2), due("early", 10)), put(num(3), due("middle", 20)),
		put(num(4), elsewhere), put(num(5), otherServer), put(num(6), quiet), put(num(7), expired)))
	q := idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets"}
	for until, want := range map[idem.Instant][]string{9: {}, 10: {"early"}, 29: {"early", "middle"}, 1 << 60: {"early", "middle", "late"}} {
		q.Until = until
		k.equal(k.keys(q), want)
		q.Limit = 1
		k.equal(k.keys(q), want)
		q.Limit = 0
	}
	// The index follows the record.
	k.mustCommit(puts(put(num(2), due("early", 25))))
	q.Until = 27
	k.equal(k.keys(q), []string{"middle", "early"})
	k.mustCommit(puts(put(num(2), record("early"))))
	k.equal(k.keys(q), []string{"middle"})
}

func listExtended(_ *testing.T, k kit) {
	now := k.mustClock()
	at := func(m int) idem.Instant { return now.Add(time.Duration(m) * time.Minute) }
	for n, key := range []string{"a", "b", "c", "d"} {
		k.mustCommit(puts(put(num(n), started(key, mine, at(n+1)))))
	}
	extendTo := func(n, m int) {
		k.mustCommit(idem.Change{Marks: []idem.Mark{{Ref: op(num(n)), LeaseEnd: at(m), Token: mine}}})
	}
	q := idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets", Until: at(10)}
	k.equal(k.keys(q), []string{"a", "b", "c", "d"})
	extendTo(0, 20) // beyond what is asked for
	k.equal(k.keys(q), []string{"b", "c", "d"})
	extendTo(1, 9) // behind the others
	extendTo(2, 5)
	for limit := range 4 {
		q.Limit = limit
		k.equal(k.keys(q), []string{"d", "c", "b"})
	}
}

func listByState(_ *testing.T, k kit) {
	for n, st := range []idem.State{idem.StatePlanned, idem.StateUnknown, idem.StateNeedsReview, idem.StateUnknown} {
		r := record(string(st))
		r.State = st
		if n == 3 {
			r.Scope.Tenant, r.Key = "other", "other"
		}
		k.mustCommit(puts(put(num(n), r)))
	}
	q := idem.Query{Order: idem.ByState, State: idem.StateUnknown}
	got := k.keys(q)
	slices.Sort(got)
	k.equal(got, []string{"UNKNOWN", "other"})
	q.Tenant = "other"
	k.equal(k.keys(q), []string{"other"})
	q = idem.Query{Order: idem.ByState, State: idem.StateNeedsReview}
	k.equal(k.keys(q), []string{"NEEDS_REVIEW"})
	r := k.mustRecord(num(2))
	r.State = idem.StateCommitted
	k.mustCommit(puts(put(num(2), r)))
	k.equal(k.keys(q), []string{})
	q.State = idem.StateCommitted
	k.equal(k.keys(q), []string{"NEEDS_REVIEW"})
}

func listByTask(_ *testing.T, k kit) {
	for n, tc := range []struct {
		tenant, task string
		created      idem.Instant
	}{{"acme", "t", 30}, {"acme", "t", 10}, {"acme", "t1", 5}, {"acmet", "", 5}, {"acme", "t", 20}, {"b", "t", 1}, {"acme", "", 2}} {
		r := record(fmt.Sprint(n))
		r.Scope.Tenant, r.Task, r.CreatedAt = tc.tenant, tc.task, tc.created
		k.mustCommit(puts(put(num(n), r)))
	}
	for limit := range 3 {
		k.equal(k.keys(idem.Query{Order: idem.ByTask, Tenant: "acme", Task: "t", Limit: limit}), []string{"1", "4", "0"})
	}
	k.equal(k.keys(idem.Query{Order: idem.ByTask, Tenant: "acme"}), []string{})
}

// listCursors: a listing goes on behind its cursor, also where the row that it
// names is gone and others came.
func listCursors(_ *testing.T, k kit) {
	for n := 1; n <= 9; n++ {
		k.mustCommit(puts(put(num(n), due(fmt.Sprint(n), idem.Instant(n*10)))))
	}
	q := idem.Query{Order: idem.ByDue, Tenant: "acme", Server: "tickets", Until: 1000, Limit: 4}
	p := k.mustList(q)
	k.mustCommit(idem.Change{Drops: []idem.Ref{op(num(4)), op(num(6))}, Puts: []idem.Row{
		put(num(11), due("before", 5)), put(num(12), due("between", 75)),
	}})
	q.After = p.Next
	k.equal(k.keys(q), []string{"5", "7", "between", "8", "9"})
	q.After, q.Limit = nil, 9
	if p := k.mustList(q); p.Next != nil {
		k.Fatal("the last page, filled to its limit, has a cursor")
	}
}

func listForeignCursor(k kit) {
	if _, err := k.store.List(k.ctx(), idem.Query{After: []byte("short")}); err == nil {
		k.Fatal("no error")
	}
	if _, err := k.store.List(k.ctx(), idem.Query{Order: 99}); err == nil {
		k.Fatal("an unknown order: no error")
	}
}
