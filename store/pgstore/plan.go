package pgstore

import (
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// plan is a Change as the statement takes it: checked, encoded, its marks merged
// into its own puts. It is made by the caller of Commit, off the lanes.
type plan struct {
	id      idem.ChangeID
	refs    map[idem.Ref]struct{} // every row it touches
	needs   []idem.Need
	absent  []idem.Ref // needed to be absent, and not put: locked by a placeholder
	puts    []idem.Row
	bodies  []entry // of puts; of an operation only the body is set
	drops   []idem.Ref
	leases  []idem.Mark
	aliases []idem.Row
	twins   []idem.Row // slots that hold nothing but the twins to join
	handed  []idem.Row // deliveries to merge
	merges  []entry    // of aliases, twins and handed, in this order
	size    int        // of what is stored, about
	changed []idem.ID  // operations that waiters may wait for
	ended   []idem.ID  // of these, those that are not STARTED

	deadline time.Time    // of Commit's patience
	done     chan verdict // takes one
}

func newPlan(c *idem.Change) (*plan, error) {
	if _, err := core.Prepare(c); err != nil {
		return nil, err
	}
	p := &plan{id: c.ID, needs: c.Needs, drops: c.Drops, refs: map[idem.Ref]struct{}{}}
	if p.id == (idem.ChangeID{}) { // only to be told from others
		_, _ = rand.Read(p.id[:])
	}
	p.puts = slices.Clone(c.Puts)
	for i := range c.Marks {
		if m := &c.Marks[i]; !p.mergeIntoPut(m) && !p.begin(m) {
			p.mark(m)
		}
	}
	// Whoever marks several rows does it in one order, so that nobody waits for
	// each other.
	for _, rows := range [][]idem.Row{p.aliases, p.twins, p.handed} {
		slices.SortFunc(rows, func(a, b idem.Row) int { return a.Ref.Compare(b.Ref) })
	}
	if err := p.encode(); err != nil {
		return nil, err
	}
	p.touch()
	return p, p.checkNeeds()
}

// checkNeeds finds the rows that have to stay absent although nothing is put
// there, and refuses what contradicts itself.
func (p *plan) checkNeeds() error {
	for i, n := range p.needs {
		for _, other := range p.needs[:i] {
			if other.Ref == n.Ref && other.Version != n.Version {
				return fmt.Errorf("row %d/%s is needed at two versions", n.Ref.Kind, n.Ref.ID)
			}
		}
		if n.Lease > idem.LeaseOver {
			return fmt.Errorf("row %d/%s: unknown need of a lease: %d", n.Ref.Kind, n.Ref.ID, n.Lease)
		}
		written := slices.ContainsFunc(p.puts, func(r idem.Row) bool { return r.Ref == n.Ref })
		if n.Version == 0 && !written && !slices.Contains(p.absent, n.Ref) {
			p.absent = append(p.absent, n.Ref)
		}
	}
	return nil
}

// mergeIntoPut applies a mark to the row that the Change itself puts.
func (p *plan) mergeIntoPut(m *idem.Mark) bool {
	i := slices.IndexFunc(p.puts, func(r idem.Row) bool { return r.Ref == m.Ref })
	if i < 0 {
		return false
	}
	r := &p.puts[i]
	switch {
	case m.LeaseEnd != 0 && core.Claimed(r.Operation, m.Token):
		rec := *r.Operation
		rec.Lease.End = max(rec.Lease.End, m.LeaseEnd)
		r.Operation = &rec
	case m.Twin != (idem.ID{}) && !slices.Contains(r.Slot.Open, m.Twin):
		slot := *r.Slot
		slot.Open = append(slices.Clip(slot.Open), m.Twin)
		r.Slot = &slot
	case m.Delivered != nil:
		d := &idem.Delivered{}
		d.Merge(r.Delivered)
		d.Merge(m.Delivered)
		r.Delivered = d
	}
	return true // a put alias is there before the mark
}

// begin makes a put of a mark on a row that the Change drops, or needs to be
// absent: there is nothing to merge it with.
func (p *plan) begin(m *idem.Mark) bool {
	dropped := slices.Index(p.drops, m.Ref)
	if need := p.need(m.Ref); dropped < 0 && (need == nil || need.Version > 0) {
		return false
	}
	row := idem.Row{Ref: m.Ref, Alias: m.Alias}
	switch {
	case m.LeaseEnd != 0:
		return true // nobody holds it
	case m.Delivered != nil:
		row.Delivered = &idem.Delivered{}
		row.Delivered.Merge(m.Delivered)
	case m.Alias == nil:
		row.Slot = &idem.Slot{Open: []idem.ID{m.Twin}}
	}
	if dropped >= 0 {
		p.drops = slices.Delete(slices.Clone(p.drops), dropped, dropped+1)
	}
	p.puts = append(p.puts, row)
	return true
}

// mark notes a mark on a row that the Change does not put; several on one row
// become one.
func (p *plan) mark(m *idem.Mark) {
	same := func(r idem.Row) bool { return r.Ref == m.Ref }
	switch {
	case m.LeaseEnd != 0:
		p.leases = append(p.leases, *m)
	case m.Alias != nil:
		if !slices.ContainsFunc(p.aliases, same) {
			p.aliases = append(p.aliases, idem.Row{Ref: m.Ref, Alias: m.Alias})
		}
	case m.Delivered != nil:
		i := slices.IndexFunc(p.handed, same)
		if i < 0 {
			i = len(p.handed)
			p.handed = append(p.handed, idem.Row{Ref: m.Ref, Delivered: &idem.Delivered{}})
		}
		p.handed[i].Delivered.Merge(m.Delivered)
	default:
		i := slices.IndexFunc(p.twins, same)
		if i < 0 {
			i = len(p.twins)
			p.twins = append(p.twins, idem.Row{Ref: m.Ref, Slot: &idem.Slot{}})
		}
		if s := p.twins[i].Slot; !slices.Contains(s.Open, m.Twin) {
			s.Open = append(s.Open, m.Twin)
		}
	}
}

func (p *plan) encode() error {
	p.bodies = make([]entry, len(p.puts))
	for i := range p.puts {
		var err error
		if p.bodies[i], err = newEntry(&p.puts[i]); err != nil {
			return err
		}
		p.size += len(p.bodies[i].body)
	}
	for _, rows := range [][]idem.Row{p.aliases, p.twins, p.handed} {
		for i := range rows {
			e, err := newEntry(&rows[i])
			if err != nil {
				return err
			}
			p.merges = append(p.merges, e)
		}
	}
	return nil
}

func (p *plan) touch() {
	add := func(ref idem.Ref) { p.refs[ref] = struct{}{} }
	for i := range p.needs {
		add(p.needs[i].Ref)
	}
	for i := range p.puts {
		add(p.puts[i].Ref)
		if rec := p.puts[i].Operation; rec != nil {
			p.changed = append(p.changed, p.puts[i].Ref.ID)
			if rec.State != idem.StateStarted {
				p.ended = append(p.ended, p.puts[i].Ref.ID)
			}
		}
	}
	for _, ref := range p.drops {
		add(ref)
		if ref.Kind == idem.KindOperation {
			p.changed, p.ended = append(p.changed, ref.ID), append(p.ended, ref.ID)
		}
	}
	for i := range p.leases {
		add(p.leases[i].Ref)
	}
	for _, rows := range [][]idem.Row{p.aliases, p.twins, p.handed} {
		for i := range rows {
			add(rows[i].Ref)
		}
	}
}

// relaxed reports whether nothing is lost that matters when the server forgets
// the commit: lease ends and deliveries, whose loss is on the safe side.
func (p *plan) relaxed() bool {
	return len(p.needs)+len(p.puts)+len(p.drops)+len(p.aliases)+len(p.twins) == 0
}

// meets reports whether both touch the same row.
func (p *plan) meets(rows map[idem.Ref]struct{}) bool {
	for ref := range p.refs {
		if _, ok := rows[ref]; ok {
			return true
		}
	}
	return false
}
