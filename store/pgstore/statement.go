package pgstore

import (
	"slices"
	"strconv"
	"strings"

	idem "github.com/mcp-idem/mcp-idem"
)

// statement composes the one statement that carries out a group of plans. How it
// keeps the rules of idem.Store, under READ COMMITTED:
//
//   - Every existing row that a plan needs, puts or drops is locked first, in the
//     order of the keys. A lock waits for who is faster and returns the row as
//     that one left it, so the needs are judged by the newest versions, and what
//     was judged stays so until the commit.
//   - Needs that do not hold refuse their whole plan, and no other of the group:
//     no two plans of a group touch the same row.
//   - A row that did not exist when the statement began cannot be locked. Where
//     another transaction inserts it meanwhile, writing it breaks the constraint
//     *_lost_race and so the whole statement; the next try sees the row.
//   - A row that has to stay absent although nothing is put there is inserted at
//     version 0, which everybody reads as absent, so that it can be locked.
type statement struct {
	args  []any
	parts []string // common table expressions
}

// arg adds a parameter and returns its place.
func (st *statement) arg(v any) string {
	st.args = append(st.args, v)
	return "$" + strconv.Itoa(len(st.args))
}

func (st *statement) with(name, query string) {
	st.parts = append(st.parts, name+" AS "+query)
}

// rows is unnest over columns of parameters, each with its type.
func (st *statement) rows(alias string, columns ...column) string {
	args := make([]string, len(columns))
	names := make([]string, len(columns))
	for i, c := range columns {
		args[i], names[i] = st.arg(c.values)+"::"+c.typ+"[]", c.name
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS " + alias + "(" + strings.Join(names, ", ") + ")"
}

// among holds for the rows with these keys. A join with rows of parameters says
// the same, but the server may carry that out by reading the whole table.
func (st *statement) among(column string, keys [][]byte) string {
	return column + " = ANY (" + st.arg(keys) + "::bytea[])"
}

type column struct {
	name, typ string
	values    any
}

// allowed leaves out what belongs to a refused plan.
const allowed = ` WHERE NOT EXISTS (SELECT FROM refused r WHERE r.plan = p.plan)`

// relax makes the commit of this statement not wait for the disk.
const relax = "(SELECT set_config('synchronous_commit', 'off', true)) AS relaxed"

// compose returns the statement's text and parameters. It yields the clock, and
// a row for every need that does not hold.
func compose(group []*plan) (string, []any) {
	st := &statement{}
	st.with("c", "MATERIALIZED (SELECT "+moment+" AS now)")
	st.lock(group)
	st.judge(group)
	st.putOperations(group)
	st.putEntries(group)
	st.drop(group)
	st.extend(group)
	st.merge(group)
	tail := " FROM c LEFT JOIN refused r ON true"
	if !slices.ContainsFunc(group, func(p *plan) bool { return !p.relaxed() }) {
		tail += ", " + relax
	}
	return st.text("SELECT c.now, r.plan, r.source, r.id, r.have, r.want, r.why, r.change" + tail), st.args
}

func (st *statement) text(last string) string {
	if len(st.parts) == 0 {
		return last
	}
	return "WITH " + strings.Join(st.parts, ",\n") + "\n" + last
}

// lock takes the rows that exist.
func (st *statement) lock(group []*plan) {
	var ops, entries [][]byte
	add := func(ref idem.Ref) {
		if ref.Kind == idem.KindOperation {
			ops = append(ops, ref.ID[:])
		} else {
			entries = append(entries, key(ref))
		}
	}
	for _, p := range group {
		for i := range p.needs {
			add(p.needs[i].Ref)
		}
		for i := range p.puts {
			add(p.puts[i].Ref)
		}
		for _, ref := range p.drops {
			add(ref)
		}
	}
	st.with("operation_held", "MATERIALIZED (SELECT id, version, change, lease_token, lease_end FROM {schema}.operation WHERE id = ANY ("+
		st.arg(ops)+"::bytea[]) ORDER BY id FOR UPDATE)")
	if len(entries) > 0 {
		st.with("entry_held", "MATERIALIZED (SELECT key, version, change FROM {schema}.entry WHERE key = ANY ("+
			st.arg(entries)+"::bytea[]) ORDER BY key FOR UPDATE)")
	} else {
		st.with("entry_held", "(SELECT NULL::bytea AS key, 0::bigint AS version, NULL::bytea AS change WHERE false)")
	}
}

// judge finds the needs that do not hold.
func (st *statement) judge(group []*plan) {
	var ops, entries struct {
		plan    []int32
		id      [][]byte
		version []int64
		lease   []int16
		token   [][]byte
	}
	for n, p := range group {
		for i := range p.needs {
			need, to := &p.needs[i], &entries
			id := need.Ref.ID[:]
			if need.Ref.Kind == idem.KindOperation {
				to = &ops
			} else {
				id = key(need.Ref)
			}
			to.plan, to.id, to.version = append(to.plan, int32(n)), append(to.id, id), append(to.version, int64(need.Version))
			to.lease, to.token = append(to.lease, int16(need.Lease)), append(to.token, need.Token[:])
		}
	}
	var parts []string
	if len(ops.id) > 0 {
		parts = append(parts, `SELECT n.plan, 0 AS source, n.id, coalesce(h.version, 0) AS have, n.version AS want, h.change,
  CASE WHEN coalesce(h.version, 0) <> n.version THEN 'version' ELSE 'lease' END AS why
 FROM c, `+st.rows("n", column{"plan", "int", ops.plan}, column{"id", "bytea", ops.id}, column{"version", "bigint", ops.version},
			column{"lease", "smallint", ops.lease}, column{"token", "bytea", ops.token})+`
 LEFT JOIN operation_held h ON h.id = n.id
 WHERE coalesce(h.version, 0) <> n.version
  OR CASE n.lease WHEN `+strconv.Itoa(int(idem.LeaseHeld))+` THEN NOT coalesce(h.lease_token = n.token AND h.lease_end > c.now, false)
     WHEN `+strconv.Itoa(int(idem.LeaseOver))+` THEN coalesce(h.lease_end, 0) > c.now ELSE false END`)
	}
	if len(entries.id) > 0 {
		// Nobody holds a lease of an entry.
		parts = append(parts, `SELECT n.plan, 1 AS source, n.id, coalesce(h.version, 0) AS have, n.version AS want, h.change,
  CASE WHEN coalesce(h.version, 0) <> n.version THEN 'version' ELSE 'lease' END AS why
 FROM `+st.rows("n", column{"plan", "int", entries.plan}, column{"id", "bytea", entries.id}, column{"version", "bigint", entries.version},
			column{"lease", "smallint", entries.lease})+`
 LEFT JOIN entry_held h ON h.key = n.id
 WHERE coalesce(h.version, 0) <> n.version OR n.lease = `+strconv.Itoa(int(idem.LeaseHeld)))
	}
	if len(parts) == 0 {
		parts = append(parts, `SELECT NULL::int AS plan, 0 AS source, NULL::bytea AS id, 0::bigint AS have, 0::bigint AS want, NULL::bytea AS change, '' AS why WHERE false`)
	}
	st.with("refused", "MATERIALIZED ("+strings.Join(parts, "\n UNION ALL\n ")+")")
}

// raise is the version after a write, which makes a version one higher and leaves
// a placeholder what it is; -1, which no row may have, where another transaction
// was faster.
func raise(table string) string {
	return "CASE WHEN " + table + ".version = greatest(excluded.version - 1, 0) THEN excluded.version ELSE -1 END"
}

// putOperations writes operations, and the placeholders of those that have to
// stay absent, all in the order of their ids: then of two that need absent what
// the other puts, one waits for the other, and neither for each other.
func (st *statement) putOperations(group []*plan) {
	var ops operations
	for n, p := range group {
		for i := range p.puts {
			if r := p.puts[i].Operation; r != nil {
				ops.add(n, p, p.puts[i].Ref.ID, 1, r, p.bodies[i].body)
			}
		}
		for _, ref := range p.absent {
			if ref.Kind == idem.KindOperation {
				ops.add(n, p, ref.ID, 0, &idem.Record{}, []byte{})
			}
		}
	}
	if len(ops.id) == 0 {
		return
	}
	set := make([]string, len(operationPut))
	for i, c := range operationPut {
		set[i] = c + " = " + assigned(c, "excluded.")
	}
	st.with("operation_put", `(INSERT INTO {schema}.operation AS o (id, version, `+strings.Join(operationPut, ", ")+`)
 SELECT p.id, coalesce(h.version, 0) + p.step, p.`+strings.Join(operationPut, ", p.")+`
 FROM `+st.rows("p", ops.columns()...)+` LEFT JOIN operation_held h ON h.id = p.id`+allowed+` ORDER BY p.id
 ON CONFLICT (id) DO UPDATE SET version = `+raise("o")+`, `+strings.Join(set, ", ")+`)`)
}

// assigned is what a column of an operation that exists is set to.
func assigned(column, from string) string {
	if column != "lease_end" {
		return from + column
	}
	return "CASE WHEN " + from + "state = 'STARTED' AND " + from + "lease_end <> 0 THEN " + keptLease(from+"lease_token", from+"lease_end") + " ELSE " + from + "lease_end END"
}

// keptLease is the end of a lease that a put must not shorten: marks of the same
// claim may have extended it.
func keptLease(token, end string) string {
	return "CASE WHEN o.state = 'STARTED' AND o.lease_token = " + token + " THEN greatest(o.lease_end, " + end + ") ELSE " + end + " END"
}

// dueOf is what the index of what is due holds. That of a claim is the end of
// its lease, which is read from its own column.
func dueOf(r *idem.Record) *int64 {
	due := int64(r.Due())
	if due == 0 || r.State == idem.StateStarted {
		return nil
	}
	return &due
}

// putEntries is putOperations for the other table.
func (st *statement) putEntries(group []*plan) {
	var e entries
	var step []int64
	for n, p := range group {
		for i := range p.puts {
			if p.puts[i].Operation == nil {
				e.add(n, p, p.puts[i].Ref, &p.bodies[i])
				step = append(step, 1)
			}
		}
		for _, ref := range p.absent {
			if ref.Kind != idem.KindOperation {
				e.add(n, p, ref, &entry{})
				step = append(step, 0)
			}
		}
	}
	if len(e.key) == 0 {
		return
	}
	st.with("entry_put", `(INSERT INTO {schema}.entry AS e (key, version, change, body, members, upto, extra)
 SELECT p.key, coalesce(h.version, 0) + p.step, p.change, p.body, p.members::bytea[], p.upto, p.extra::bigint[]
 FROM `+st.rows("p", append(e.columns(), column{"step", "bigint", step})...)+`
 LEFT JOIN entry_held h ON h.key = p.key`+allowed+` ORDER BY p.key
 ON CONFLICT (key) DO UPDATE SET version = `+raise("e")+`, change = excluded.change, body = excluded.body, members = excluded.members,
  upto = excluded.upto, extra = excluded.extra)`)
}

func (st *statement) drop(group []*plan) {
	var ops, rows struct {
		plan []int32
		id   [][]byte
	}
	for n, p := range group {
		for _, ref := range p.drops {
			to, id := &rows, key(ref)
			if ref.Kind == idem.KindOperation {
				to, id = &ops, ref.ID[:]
			}
			to.plan, to.id = append(to.plan, int32(n)), append(to.id, id)
		}
	}
	if len(ops.id) > 0 {
		st.with("operation_drop", `(DELETE FROM {schema}.operation o USING `+
			st.rows("p", column{"plan", "int", ops.plan}, column{"id", "bytea", ops.id})+allowed+` AND o.id = p.id AND `+st.among("o.id", ops.id)+`)`)
	}
	if len(rows.id) > 0 {
		st.with("entry_drop", `(DELETE FROM {schema}.entry e USING `+
			st.rows("p", column{"plan", "int", rows.plan}, column{"key", "bytea", rows.id})+allowed+` AND e.key = p.key AND `+st.among("e.key", rows.id)+`)`)
	}
}

// extend moves lease ends. A claim's own only, and never back.
func (st *statement) extend(group []*plan) {
	var plans []int32
	var id, token [][]byte
	var end []int64
	for n, p := range group {
		for i := range p.leases {
			m := &p.leases[i]
			plans, id, token, end = append(plans, int32(n)), append(id, m.Ref.ID[:]), append(token, m.Token[:]), append(end, int64(m.LeaseEnd))
		}
	}
	if len(id) == 0 {
		return
	}
	st.with("extended", `(UPDATE {schema}.operation o SET lease_end = p.lease_end FROM `+
		st.rows("p", column{"plan", "int", plans}, column{"id", "bytea", id}, column{"token", "bytea", token}, column{"lease_end", "bigint", end})+
		allowed+` AND o.id = p.id AND `+st.among("o.id", id)+` AND `+claimed("p.token")+` AND o.lease_end < p.lease_end)`)
}

// claimed is whether an operation is under the claim with this token.
func claimed(token string) string {
	return "o.state = 'STARTED' AND o.lease_end <> 0 AND o.lease_token = " + token
}
