package torture

import (
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// The following make histories of one operation.

const theRow = "1/op"

func put(need uint64, digest string, more ...func(*row)) row {
	r := row{Ref: theRow, Kind: idem.KindOperation, Need: &need, Put: true, Digest: digest, State: idem.StateStarted, Token: "a", Fence: 1, End: 100}
	for _, f := range more {
		f(&r)
	}
	return r
}

func claim(token string, fence uint64) func(*row) {
	return func(r *row) { r.Token, r.Fence = token, fence }
}

func over(r *row) { r.Lease = idem.LeaseOver }

func did(from, to moment, how string, r row) commit {
	return commit{from: from, to: to, how: how, rows: []row{r}, stamp: idem.Instant(to)}
}

func saw(from, to moment, version uint64, digest string) reading {
	r := put(0, digest)
	return reading{from: from, to: to, snapshot: true,
		rows: []row{{Ref: theRow, Kind: r.Kind, Version: version, Digest: digest, State: r.State, Token: r.Token, Fence: r.Fence}}}
}

// TestTheChecker: what must not be is found, and what may be is not.
func TestTheChecker(t *testing.T) {
	renewed := row{Ref: theRow, Kind: idem.KindOperation, Mark: true, Token: "a", End: 500}
	for _, c := range []struct {
		name    string
		commits []commit
		reads   []reading
		crashes []moment
		order   bool // no order explains it
		rules   int  // invariants that are broken
	}{
		{name: "one after the other",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(3, 4, applied, put(1, "y"))},
			reads:   []reading{saw(5, 6, 2, "y")}},
		{name: "seen while it happens",
			commits: []commit{did(1, 9, applied, put(0, "x"))},
			reads:   []reading{saw(2, 3, 0, ""), saw(4, 5, 1, "x")}},
		{name: "two made one version",
			commits: []commit{did(1, 9, applied, put(0, "x")), did(1, 9, applied, put(0, "y"))}, order: true, rules: 2},
		{name: "a read of the past",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(3, 4, applied, put(1, "y"))},
			reads:   []reading{saw(5, 6, 1, "x")}, order: true},
		{name: "what was committed is gone",
			commits: []commit{did(1, 2, applied, put(0, "x"))},
			reads:   []reading{saw(5, 6, 0, "")}, order: true},
		{name: "in doubt and seen late",
			commits: []commit{did(1, never, doubtful, put(0, "x"))},
			reads:   []reading{saw(5, 6, 0, ""), saw(7, 8, 1, "x")}},
		{name: "in doubt and never applied",
			commits: []commit{did(1, never, doubtful, put(0, "x")), did(2, 3, applied, put(0, "y"))},
			reads:   []reading{saw(5, 6, 1, "y")}},
		{name: "in doubt and applied twice",
			commits: []commit{did(1, never, doubtful, put(0, "x"))},
			reads:   []reading{saw(5, 6, 1, "x"), saw(7, 8, 0, ""), saw(9, 10, 1, "x")}, order: true},
		{name: "a conflict with what is not there",
			commits: []commit{{from: 1, to: 2, how: conflicted, ref: theRow, have: 3, rows: []row{put(1, "x")}}}, order: true},
		{name: "refused and seen",
			commits: []commit{did(1, 2, refused, put(0, "x"))},
			reads:   []reading{saw(5, 6, 1, "x")}, order: true, rules: 1},
		{name: "a claim with the fence of another",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(3, 4, applied, put(1, "y", claim("b", 1)))}, rules: 1},
		{name: "a fence goes back",
			commits: []commit{did(1, 2, applied, put(0, "x", claim("a", 2))), did(3, 4, applied, put(1, "y", claim("b", 1)))}, rules: 1},
		{name: "a lease that is over",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(150, 160, applied, put(1, "y", over))}},
		{name: "a lease that is not",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(50, 60, applied, put(1, "y", over))}, rules: 1},
		{name: "a renewed lease that is not",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(50, 60, applied, renewed), did(150, 160, applied, put(1, "y", over))}, rules: 1},
		{name: "a renewal that the server forgot",
			commits: []commit{did(1, 2, applied, put(0, "x")), did(50, 60, applied, renewed), did(150, 160, applied, put(1, "y", over))}, crashes: []moment{100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &history{commits: c.commits, reads: c.reads}
			if bad := h.linearizable(time.Second); len(bad) > 0 != c.order {
				t.Errorf("not linearizable: %v, want %v", bad, c.order)
			}
			if bad := h.invariants(c.crashes); len(bad) != c.rules {
				t.Errorf("%d rules are broken, want %d: %q", len(bad), c.rules, bad)
			}
		})
	}
}

// TestTheJudge is the same for what is compared with the shop.
func TestTheJudge(t *testing.T) {
	op := idem.ID{1}
	one := effect{ID: "E1", Key: op.String(), Name: "n"}
	two := effect{ID: "E2", Key: op.String(), Name: "n"}
	told := func(e effect) []answer { return []answer{{op: op.String(), result: string(e.receipt())}} }
	for _, c := range []struct {
		name    string
		record  idem.Record
		effects []effect
		answers []answer
		want    int
	}{
		{"once", idem.Record{State: idem.StateCommitted}, []effect{one}, told(one), 0},
		{"twice", idem.Record{State: idem.StateNeedsReview}, []effect{one, two}, nil, 2},
		{"not at all", idem.Record{State: idem.StateCommitted}, nil, nil, 1},
		{"nobody knows", idem.Record{State: idem.StateNeedsReview}, []effect{one}, nil, 0},
		{"proven absent, and there", idem.Record{State: idem.StateFailedFinal, Absence: idem.AbsenceProven}, []effect{one}, nil, 1},
		{"the tool's word", idem.Record{State: idem.StateFailedFinal, Absence: idem.AbsenceClaimed}, []effect{one}, nil, 0},
		{"another's answer", idem.Record{State: idem.StateCommitted}, []effect{one}, told(two), 1},
		{"a duplicate is known", idem.Record{State: idem.StateNeedsReview, Duplicates: 1}, []effect{one}, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.record.Op = op
			h := &history{answers: c.answers}
			if bad := h.judge([]*idem.Record{&c.record}, c.effects); len(bad) != c.want {
				t.Errorf("%d complaints, want %d: %q", len(bad), c.want, bad)
			}
		})
	}
	h := &history{}
	if bad := h.judge(nil, []effect{one}); len(bad) != 1 {
		t.Errorf("an effect without a record: %q", bad)
	}
}
