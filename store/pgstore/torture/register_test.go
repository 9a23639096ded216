package torture

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	idem "github.com/mcp-idem/mcp-idem"
)

// register is the state of a row: its version, 0 while it is absent, and what it
// holds.
type register struct {
	version uint64
	digest  string
}

// step is what a call did to one row, or saw of it.
type step struct {
	row                     // with Version and Digest: read
	read, conflict, doubted bool
	have                    uint64 // conflict
}

// after returns what a row may be after the step; nothing: the step cannot have
// happened to such a row.
func (s step) after(r register) []register {
	switch {
	case s.read:
		if r != (register{s.Version, s.Digest}) {
			return nil
		}
		return []register{r}
	case s.conflict:
		if r.version != s.have {
			return nil
		}
		return []register{r}
	}
	var next []register
	if s.Need == nil || *s.Need == r.version {
		next = s.write(r)
	}
	if s.doubted && !slices.Contains(next, r) {
		next = append(next, r)
	}
	return next
}

func (s step) write(r register) []register {
	switch {
	case s.Put:
		return []register{{r.version + 1, s.Digest}}
	case s.Drop:
		return []register{{}}
	case s.Mark && r.version == 0 && (s.Kind == idem.KindAlias || s.Kind == idem.KindSlot):
		return []register{{1, s.Digest}}
	case s.Mark && s.Kind == idem.KindSlot: // without effect where it is in already
		return []register{r, {r.version + 1, ""}}
	}
	return []register{r} // needed, or a lease extended
}

// model is a register of which each commit is a compare-and-set.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, _ any) []any {
		var next []any
		for _, r := range input.(step).after(state.(register)) {
			next = append(next, r)
		}
		return next
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

// steps are the operations on each row, in porcupine's words.
func (h *history) steps() map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	add := func(host int, from, to moment, s step) {
		if s.Kind == idem.KindDelivery { // nothing but marks
			return
		}
		all[s.Ref] = append(all[s.Ref], porcupine.Operation{ClientId: host, Input: s, Call: int64(from), Return: int64(to)})
	}
	for _, c := range h.commits {
		for _, r := range c.rows {
			switch c.how {
			case applied:
				add(c.host, c.from, c.to, step{row: r})
			case doubtful:
				if r.Put || r.Drop || r.Mark {
					add(c.host, c.from, c.to, step{row: r, doubted: true})
				}
			case conflicted:
				if r.Ref == c.ref {
					add(c.host, c.from, c.to, step{row: r, conflict: true, have: c.have})
				}
			}
		}
	}
	for _, l := range h.reads {
		for _, r := range l.rows {
			if l.snapshot {
				add(l.host, l.from, l.to, step{row: r, read: true})
			}
		}
	}
	return all
}

// linearizable returns the rows whose history no order of its calls explains.
func (h *history) linearizable(patience time.Duration) (bad []string) {
	for ref, ops := range h.steps() {
		if r := porcupine.CheckOperationsTimeout(model, ops, patience); r != porcupine.Ok {
			bad = append(bad, fmt.Sprintf("%s: %s", ref, r))
		}
	}
	return bad
}
