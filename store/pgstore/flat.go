package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// flat composes a leaner statement for a group in which every plan puts one
// operation, and makes marks: nearly all groups. Each put carries its need
// itself, as in single, and needs no other to be made. The statement yields the
// server's time and the operations that were put, with whose marks; the other
// plans changed nothing, and the statement for groups says why.
func flat(group []*plan) (text string, args []any) {
	st := &statement{}
	var inserts, updates operations
	byID := slices.SortedFunc(slices.Values(group), func(a, b *plan) int { return a.puts[0].Ref.Compare(b.puts[0].Ref) }) // locks in one order
	for n, p := range byID {
		to := &inserts
		want := p.needs[0].Version
		if want > 0 {
			to = &updates
		}
		to.add(n, p, p.puts[0].Ref.ID, int64(want), p.puts[0].Operation, p.bodies[0].body)
	}
	var put []string
	if len(inserts.id) > 0 {
		put = append(put, "SELECT id FROM inserted")
		st.with("inserted", `(INSERT INTO {schema}.operation (id, version, `+strings.Join(operationPut, ", ")+`)
 SELECT p.id, 1, p.`+strings.Join(operationPut, ", p.")+` FROM `+st.rows("p", inserts.columns()...)+` ON CONFLICT (id) DO NOTHING RETURNING id)`)
	}
	if len(updates.id) > 0 {
		put = append(put, "SELECT id FROM updated")
		set := make([]string, len(operationPut))
		for i, c := range operationPut {
			set[i] = c + " = " + assigned(c, "p.")
		}
		st.with("updated", `(UPDATE {schema}.operation o SET version = o.version + 1, `+strings.Join(set, ", ")+`
 FROM `+st.rows("p", updates.columns()...)+` WHERE o.id = p.id AND `+st.among("o.id", updates.id)+` AND o.version = p.step RETURNING o.id)`)
	}
	st.with("put", "("+strings.Join(put, " UNION ALL ")+")")
	st.mergeFlat(byID)
	return st.text("SELECT clock_timestamp(), put.id FROM (SELECT 1) one LEFT JOIN put ON true"), st.args
}

// isFlat reports whether every plan of the group is of the kind that flat knows.
func isFlat(group []*plan) bool {
	return !slices.ContainsFunc(group, func(p *plan) bool {
		order, ok := chain(p)
		return !ok || len(order) != 1 || p.puts[0].Operation == nil || len(p.leases) > 0
	})
}

// mergeFlat makes the marks of the plans whose operation was put.
func (st *statement) mergeFlat(group []*plan) {
	type marks struct {
		entries
		op [][]byte
	}
	rows := map[string]*marks{}
	for n, p := range group {
		p.eachMark(func(m markKind, ref idem.Ref, e *entry) {
			if rows[m.name] == nil {
				rows[m.name] = &marks{}
			}
			rows[m.name].add(n, p, ref, e)
			rows[m.name].op = append(rows[m.name].op, p.puts[0].Ref.ID[:])
		})
	}
	for _, m := range []markKind{deliveryMark, twinMark, aliasMark} { // as merge
		r := rows[m.name]
		if r == nil {
			continue
		}
		columns := make([]string, len(m.columns))
		for i, name := range m.columns {
			columns[i] = "p." + name + casts[name]
		}
		st.with(m.name+"_marked", "("+m.insert("SELECT p.key, 1, p.change, "+strings.Join(columns, ", ")+" FROM "+
			st.rows("p", append(r.columns(), column{"op", "bytea", r.op})...)+" WHERE p.op IN (SELECT id FROM put) ORDER BY p.key")+")")
	}
}

// sendFlat carries out what it can of a flat group. The verdict of a plan that
// changed nothing is undecided.
func (s *Store) sendFlat(ctx context.Context, on querier, group []*plan) ([]verdict, error) {
	text, args := flat(group)
	sent := time.Now()
	rows, err := on.Query(ctx, s.sql(text), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var now time.Time
	put := map[idem.ID]bool{}
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&now, &id); err != nil {
			return nil, err
		}
		if id != nil {
			put[idem.ID(id)] = true
		}
	}
	if err := cmp.Or(rows.Err(), noTime(now)); err != nil {
		return nil, err
	}
	stamp := idem.Stamp{Time: s.clock.server(now, sent)}
	verdicts := make([]verdict, len(group))
	for i, p := range group {
		verdicts[i] = verdict{stamp: stamp, undecided: !put[p.puts[0].Ref.ID]}
	}
	return verdicts, nil
}

func noTime(t time.Time) error {
	if t.IsZero() {
		return fmt.Errorf("the server told no time")
	}
	return nil
}
