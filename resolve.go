package idem

import (
	"slices"
	"strconv"
)

// verdict is what an ask means, given one snapshot.
type verdict struct {
	want   []Ref   // further rows are needed; nothing else is set
	refuse *Error  // the answer
	op     ID      // the operation that the ask met or begins
	record *Record // as it stands, or the new one with an empty state
	begin  *begin  // what else a first claim of record writes
	needs  []Need  // of any other claim of record, beside its version
}

// begin is what the first claim of an operation writes beside the record.
type begin struct {
	needs []Need
	puts  []Row
	marks []Mark
}

// resolve finds out which operation an ask means. It is pure: rows that it
// lacks are asked for, so that all come from one snapshot. delivered tells what
// this process knows beyond the snapshot; skip are aliases that mean nothing on
// this connection any more.
func (q *question) resolve(s Snapshot, have []Ref, delivered *Delivered, skip map[ID]struct{}) verdict {
	r := resolver{q: q, s: s, have: have, delivered: delivered, skip: skip}
	if q.source == SourceBusiness {
		return r.business()
	}
	if q.source == SourceOccurrence {
		return r.occurrence()
	}
	return r.named()
}

type resolver struct {
	q         *question
	s         Snapshot
	have      []Ref
	delivered *Delivered
	skip      map[ID]struct{}
	want      []Ref
}

// need asks for rows that the snapshot does not cover.
func (r *resolver) need(refs ...Ref) bool {
	for _, ref := range refs {
		if !slices.Contains(r.have, ref) {
			r.want = append(r.want, ref)
		}
	}
	return len(r.want) > 0
}

func (r *resolver) wants() verdict { return verdict{want: r.want} }

func opRef(id ID) Ref { return Ref{KindOperation, id} }

// business: the same fields are the same operation, whoever asks; after a
// proven failure other arguments begin another generation.
func (r *resolver) business() verdict {
	q := r.q
	key := Ref{KindKey, keyID(q.scope, q.incarnation+"/"+q.business)}
	first := opRef(q.op)
	if r.need(key, first) {
		return r.wants()
	}
	row, generation := r.s.Row(key), uint32(1)
	if row.Key != nil {
		generation = row.Key.Generation
	}
	op := q.operation(generation)
	if r.need(opRef(op)) {
		return r.wants()
	}
	rec := r.s.Operation(op)
	if rec == nil {
		if err := q.digest(); err != nil {
			return verdict{refuse: err}
		}
		v := r.fresh(op, generation, 0)
		v.begin.needs = append(v.begin.needs, Need{Ref: key, Version: row.Version})
		return v
	}
	current := Need{Ref: key, Version: row.Version} // no later generation begins beside a claim of this one
	if same, err := q.same(rec); err != nil || same {
		return verdict{op: op, record: rec, refuse: err, needs: []Need{current}}
	}
	replaceable := rec.State == StateFailedFinal && rec.Absence == AbsenceProven || rec.Granted
	if !replaceable || rec.Expired {
		return r.mismatch(op, rec)
	}
	next := q.operation(generation + 1)
	if r.need(opRef(next)) {
		return r.wants()
	}
	v := r.fresh(next, generation+1, 0)
	v.begin.needs = append(v.begin.needs, Need{Ref: opRef(op), Version: rec.Version}, current)
	v.begin.puts = append(v.begin.puts, Row{Ref: key, Key: &KeyRow{Generation: generation + 1}})
	if rec.Granted { // a grant is used once
		used := rec.Clone()
		used.Granted = false
		v.begin.puts = append(v.begin.puts, Row{Ref: opRef(op), Operation: used})
	}
	return v
}

// named: a host's key, a step or a client's key says which operation it is.
func (r *resolver) named() verdict {
	q := r.q
	op := q.op
	if r.need(opRef(op)) {
		return r.wants()
	}
	if rec := r.s.Operation(op); rec != nil {
		same, err := q.same(rec)
		if err == nil && !same {
			return r.mismatch(op, rec)
		}
		return verdict{op: op, record: rec, refuse: err}
	}
	if err := q.digest(); err != nil {
		return verdict{refuse: err}
	}
	if q.twins(); q.slot != (ID{}) {
		if r.need(Ref{KindSlot, q.slot}) {
			return r.wants()
		}
		if q.source == SourceGeneric {
			if v, ok := r.alias(); ok {
				return v
			}
		}
	}
	return r.fresh(op, 1, 0)
}

// occurrence: an ask that names neither step nor key meets, in this order, its
// alias, an unsettled twin, the lowest outcome that this run has not in hand,
// or is the next one.
func (r *resolver) occurrence() verdict {
	q := r.q
	refs := []Ref{{KindSlot, q.slot}, {KindDelivery, q.delivery}}
	for _, a := range q.aliases {
		refs = append(refs, Ref{KindAlias, a})
	}
	if r.need(refs...) {
		return r.wants()
	}
	if v, ok := r.alias(); ok {
		return v
	}
	slot, _ := r.s.Slot(q.slot)
	each := q.rules.Repeat == RepeatEachCall
	if !each {
		for _, id := range slot.Open {
			r.need(opRef(id))
		}
		if len(r.want) > 0 {
			return r.wants()
		}
		for _, id := range slot.Open {
			if rec := r.s.Operation(id); rec != nil && unsettled(rec) {
				return verdict{op: id, record: rec}
			}
		}
		if v, ok := r.undelivered(slot); ok {
			return v
		}
		if q.rules.Repeat == RepeatRefuse && slot.N > 0 {
			return verdict{refuse: &Error{Code: CodeRepeatRefused, Text: "This was done already and its outcome was delivered; the policy allows it once. Nothing was sent."}}
		}
	}
	return r.fresh(q.occurrence(slot.N+1), 1, slot.N+1)
}

// unsettled reports whether an operation can still act or be settled.
func unsettled(r *Record) bool { return !r.State.Final() || r.Granted }

// batch bounds how many occurrences are loaded at once.
const batch = 8

// undelivered finds the lowest final outcome that this run has not in hand.
func (r *resolver) undelivered(slot Slot) (verdict, bool) {
	q := r.q
	seen := Delivered{}
	seen.Merge(r.s.Row(Ref{KindDelivery, q.delivery}).Delivered)
	seen.Merge(r.delivered)
	n := max(slot.Floor, seen.Upto)
	if q.rules.Repeat == RepeatReplay {
		n, seen = slot.Floor, Delivered{}
	}
	for n++; n <= slot.N; n++ {
		if seen.Has(n) {
			continue
		}
		id := q.occurrence(n)
		if !slices.Contains(r.have, opRef(id)) {
			for m := n; m <= min(slot.N, n+batch); m++ {
				r.need(opRef(q.occurrence(m)))
			}
			return r.wants(), true
		}
		if rec := r.s.Operation(id); rec != nil && rec.State.Final() {
			return verdict{op: id, record: rec}, true
		}
	}
	return verdict{}, false
}

// alias finds the operation that a call id of the client met before.
func (r *resolver) alias() (verdict, bool) {
	for _, a := range r.q.aliases {
		if _, done := r.skip[a]; done {
			continue
		}
		ref := Ref{KindAlias, a}
		if r.need(ref) {
			return r.wants(), true
		}
		row := r.s.Row(ref)
		if row.Alias == nil {
			continue
		}
		if r.need(opRef(row.Alias.Operation)) {
			return r.wants(), true
		}
		if rec := r.s.Operation(row.Alias.Operation); rec != nil {
			return verdict{op: row.Alias.Operation, record: rec}, true
		}
	}
	return verdict{}, false
}

func (r *resolver) mismatch(op ID, rec *Record) verdict {
	return verdict{refuse: &Error{Code: CodeMismatch, Op: op, Record: rec,
		Text: "This key belongs to a request with other arguments. Nothing was sent. One key stands for one request: keep the arguments of the first one."}}
}

// openLimit is after how many more twins of a slot the settled ones are dropped.
const openLimit = 16

// fresh is a new operation and what its first claim writes.
func (r *resolver) fresh(op ID, generation uint32, n uint64) verdict {
	q := r.q
	_, text := q.identity()
	rec := &Record{Op: op, Scope: q.scope, Source: q.source, Key: text, Generation: generation, Hash: q.hash, Args: q.ask.Args,
		Task: q.ask.Task, Run: q.ask.Run, Step: q.ask.Step, Incarnation: q.incarnation, Slot: q.slot, ReplacedArgs: q.replaced, CreatedAt: r.s.Now}
	if n > 0 {
		rec.Occurrence, rec.Key = n, strconv.FormatUint(n, 10)
	}
	b := &begin{needs: []Need{{Ref: opRef(op)}}}
	if q.slot == (ID{}) {
		return verdict{op: op, record: rec, begin: b}
	}
	ref := Ref{KindSlot, q.slot}
	slot, version := r.s.Slot(q.slot)
	full := len(slot.Open) > 0 && len(slot.Open)%openLimit == 0
	if full {
		for _, id := range slot.Open {
			r.need(opRef(id))
		}
		if len(r.want) > 0 {
			return r.wants()
		}
	}
	if n == 0 && !full { // named asks do not race each other for the slot
		b.marks = []Mark{{Ref: ref, Twin: op}}
	} else {
		slot.Open = slices.DeleteFunc(slices.Clone(slot.Open), func(id ID) bool {
			twin := r.s.Operation(id)
			return slices.Contains(r.have, opRef(id)) && (twin == nil || !unsettled(twin))
		})
		slot.Open = append(slot.Open, op)
		slot.N = max(slot.N, n)
		b.needs = append(b.needs, Need{Ref: ref, Version: version})
		b.puts = []Row{{Ref: ref, Slot: &slot}}
	}
	rec.Aliases = q.aliases
	for _, a := range q.aliases {
		b.puts = append(b.puts, Row{Ref: Ref{KindAlias, a}, Alias: &Alias{Operation: op}})
	}
	return verdict{op: op, record: rec, begin: b}
}
