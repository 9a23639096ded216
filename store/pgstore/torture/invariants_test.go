package torture

import (
	"fmt"
	"slices"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// versioned names a version of a row.
type versioned struct {
	ref     string
	version uint64
}

// invariants returns what is wrong with the history besides its order:
//
//  1. a version of a row has one content, and one commit made it;
//  2. what was refused was never seen;
//  3. a claim's token has one fence, and fences grow with the versions;
//  4. no lease was taken to be over before its end, on the ledger's clock.
func (h *history) invariants(crashes []moment) (bad []string) {
	seen := map[versioned]row{}
	fail := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	see := func(at versioned, r row) {
		if old, ok := seen[at]; ok && (old.Digest != r.Digest || old.Token != r.Token || old.Fence != r.Fence || old.State != r.State) {
			fail("%s at version %d: two contents:\n%+v\n%+v", at.ref, at.version, old, r)
		}
		seen[at] = r
	}
	for _, l := range h.reads {
		for _, r := range l.rows {
			if r.Version > 0 && r.Digest != "" {
				see(versioned{r.Ref, r.Version}, r)
			}
		}
	}
	makers := map[versioned]commit{}
	for _, c := range h.commits {
		for _, r := range c.rows {
			if !r.Put || r.Need == nil || c.how != applied || r.Digest == "" {
				continue
			}
			at := versioned{r.Ref, *r.Need + 1}
			if other, ok := makers[at]; ok {
				fail("%s at version %d was made twice:\n%+v\n%+v", at.ref, at.version, other, c)
			}
			makers[at] = c
			see(at, r)
		}
	}
	h.refusals(seen, fail)
	fences(seen, fail)
	h.leases(seen, crashes, fail)
	return bad
}

func (h *history) refusals(seen map[versioned]row, fail func(string, ...any)) {
	for _, c := range h.commits {
		for _, r := range c.rows {
			if (c.how != refused && c.how != conflicted) || !r.Put || r.Need == nil || r.Kind != idem.KindOperation {
				continue
			}
			if got := seen[versioned{r.Ref, *r.Need + 1}]; got.Digest == r.Digest {
				fail("%s: a commit that was %s (%s) has made version %d", r.Ref, c.how, c.why, *r.Need+1)
			}
		}
	}
}

func fences(seen map[versioned]row, fail func(string, ...any)) {
	byRow := map[string][]versioned{}
	for at, r := range seen {
		if r.Kind == idem.KindOperation {
			byRow[at.ref] = append(byRow[at.ref], at)
		}
	}
	for ref, versions := range byRow {
		slices.SortFunc(versions, func(x, y versioned) int { return int(x.version) - int(y.version) })
		tokens := map[string]uint64{}
		var last row
		for _, at := range versions {
			r := seen[at]
			if r.Fence < last.Fence || (r.Token != last.Token && r.Fence == last.Fence) {
				fail("%s: fence %d of claim %s comes after %d of %s", ref, r.Fence, r.Token, last.Fence, last.Token)
			}
			if fence, ok := tokens[r.Token]; ok && fence != r.Fence {
				fail("%s: claim %s has the fences %d and %d", ref, r.Token, fence, r.Fence)
			}
			tokens[r.Token], last = r.Fence, r
		}
	}
}

// forgotten is how long before a crash of the server a lease may have been
// extended in vain: these commits do not wait for the disk.
const forgotten = time.Second

// renewal is an extension of a lease.
type renewal struct {
	from, to moment
	end      idem.Instant
}

func (r renewal) lost(crashes []moment) bool {
	return slices.ContainsFunc(crashes, func(at moment) bool { return at > r.from && at.sub(r.to) < forgotten })
}

func (h *history) leases(seen map[versioned]row, crashes []moment, fail func(string, ...any)) {
	begun, renewals := map[string]idem.Instant{}, map[string][]renewal{} // by row and token
	for _, c := range h.commits {
		for _, r := range c.rows {
			switch {
			case r.Kind != idem.KindOperation:
			case r.Put && r.State == idem.StateStarted:
				begun[r.Ref+r.Token] = r.End
			case r.Mark && c.how == applied:
				renewals[r.Ref+r.Token] = append(renewals[r.Ref+r.Token], renewal{c.from, c.to, r.End})
			}
		}
	}
	for _, c := range h.commits {
		for _, r := range c.rows {
			if c.how != applied || r.Lease != idem.LeaseOver {
				continue
			}
			claim := r.Ref + seen[versioned{r.Ref, *r.Need}].Token
			end := begun[claim]
			for _, n := range renewals[claim] {
				if n.to < c.from && !n.lost(crashes) {
					end = max(end, n.end)
				}
			}
			if c.stamp < end {
				fail("%s: a lease was taken to be over %v before its end", r.Ref, end.Sub(c.stamp))
			}
		}
	}
}
