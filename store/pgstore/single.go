package pgstore

import (
	"slices"
	"strconv"
	"strings"

	idem "github.com/mcp-idem/mcp-idem"
)

// single composes a leaner statement for a plan that is on its way alone and of
// the kind that nearly all are: a claim, an outcome, marks. Each write is made
// only if the one before was:
//
//   - at most one row that exists is put, first, where its version is the needed
//     one;
//   - then rows that must not exist are inserted. Only the first write of all may
//     quietly not be made; another one that cannot be breaks a primary key, and
//     with it the statement;
//   - last come the marks, which always can be made.
//
// So all is done or nothing. The statement yields the server's time if it is
// done, and no row if it is not: then the one for groups says why. ok is false
// for every other plan.
func single(p *plan) (text string, args []any, ok bool) {
	order, ok := chain(p)
	if !ok {
		return "", nil, false
	}
	c := &chained{plan: p}
	for n, i := range order {
		if want := p.need(p.puts[i].Ref).Version; want > 0 {
			c.update(i, want)
		} else {
			c.insert(i, n == 0)
		}
	}
	for i := range p.leases {
		c.extendLease(&p.leases[i])
	}
	var marks []func()
	p.eachMark(func(m markKind, ref idem.Ref, e *entry) { marks = append(marks, func() { c.mark(m, ref, e) }) })
	for _, mark := range slices.Backward(marks) { // see statement.merge
		mark()
	}
	switch {
	case len(c.parts) == 1 && c.last != "": // the only write needs no other around it
		return c.only + " RETURNING clock_timestamp()", c.args, true
	case p.relaxed():
		return c.text("SELECT clock_timestamp() FROM " + relax), c.args, true
	}
	return c.text("SELECT clock_timestamp()" + c.from()), c.args, true
}

// chain is the order in which the rows of a plan are put, if it is one of those
// that single knows.
func chain(p *plan) (order []int, ok bool) {
	if len(p.drops) > 0 || len(p.needs) != len(p.puts) || len(p.merges)+len(p.leases) > 4 { // each shape is a prepared statement
		return nil, false
	}
	var inserts []int
	for i := range p.puts {
		need := p.need(p.puts[i].Ref)
		switch {
		case need == nil || need.Lease != idem.LeaseAny:
			return nil, false
		case need.Version == 0:
			inserts = append(inserts, i)
		case order != nil:
			return nil, false
		default:
			order = []int{i}
		}
	}
	return append(order, inserts...), true
}

// need is what the plan needs of a row; nil: nothing.
func (p *plan) need(ref idem.Ref) *idem.Need {
	for i := range p.needs {
		if p.needs[i].Ref == ref {
			return &p.needs[i]
		}
	}
	return nil
}

// chained is a statement whose writes depend on each other.
type chained struct {
	statement
	plan *plan
	last string // the put before; empty: there is none
	only string // its query
}

func (c *chained) then(query string) {
	c.only = query
	c.last = "put_" + strconv.Itoa(len(c.parts))
	c.with(c.last, "("+query+" RETURNING 1)")
}

func (c *chained) from() string {
	if c.last == "" {
		return ""
	}
	return " FROM " + c.last
}

// tableOf is the table of a row, and its primary key.
func tableOf(ref idem.Ref) (table, column string, id []byte) {
	if ref.Kind == idem.KindOperation {
		return "operation", "id", ref.ID[:]
	}
	return "entry", "key", key(ref)
}

// put is the columns of the n-th row that the plan puts, and their parameters.
func (c *chained) put(n int) (columns, params []string) {
	row, e := &c.plan.puts[n], &c.plan.bodies[n]
	add := func(name, typ string, v any) {
		columns, params = append(columns, name), append(params, c.arg(v)+"::"+typ)
	}
	add("change", "bytea", c.plan.id[:])
	add("body", "bytea", e.body)
	switch r := row.Operation; {
	case r != nil:
		add("state", "text", name(string(r.State)))
		add("tenant", "text", name(r.Scope.Tenant))
		add("server", "text", name(r.Server()))
		add("tool", "text", name(r.Scope.Tool))
		add("task", "text", name(r.Task))
		add("created", "bigint", int64(r.CreatedAt))
		add("due", "bigint", dueOf(r))
		add("lease_token", "bytea", r.Lease.Token[:])
		add("lease_end", "bigint", int64(r.Lease.End))
	case row.Slot != nil:
		add("members", "bytea[]", e.members)
	case row.Delivered != nil:
		add("upto", "bigint", e.upto)
		add("extra", "bigint[]", e.extra)
	}
	return columns, params
}

func (c *chained) insert(n int, first bool) {
	table, column, id := tableOf(c.plan.puts[n].Ref)
	columns, params := c.put(n)
	query := "INSERT INTO {schema}." + table + " (" + column + ", version, " + strings.Join(columns, ", ") + ") SELECT " +
		c.arg(id) + "::bytea, 1, " + strings.Join(params, ", ") + c.from()
	if first {
		query += " ON CONFLICT (" + column + ") DO NOTHING"
	}
	c.then(query)
}

func (c *chained) update(n int, want idem.Version) {
	row := &c.plan.puts[n]
	table, column, id := tableOf(row.Ref)
	columns, params := c.put(n)
	set := make([]string, len(columns))
	for i, name := range columns {
		set[i] = name + " = " + params[i]
		if name == "lease_end" && row.Operation.State == idem.StateStarted && row.Operation.Lease.End != 0 {
			set[i] = name + " = " + keptLease(params[slices.Index(columns, "lease_token")], params[i])
		}
	}
	c.then("UPDATE {schema}." + table + " o SET version = version + 1, " + strings.Join(set, ", ") +
		" WHERE " + column + " = " + c.arg(id) + "::bytea AND version = " + c.arg(int64(want)) + "::bigint")
}

func (c *chained) extendLease(m *idem.Mark) {
	end := c.arg(int64(m.LeaseEnd)) + "::bigint"
	c.with("extended_"+strconv.Itoa(len(c.parts)), "(UPDATE {schema}.operation o SET lease_end = "+end+c.from()+
		" WHERE o.id = "+c.arg(m.Ref.ID[:])+"::bytea AND "+claimed(c.arg(m.Token[:])+"::bytea")+" AND o.lease_end < "+end+")")
}

func (c *chained) mark(m markKind, ref idem.Ref, e *entry) {
	params := make([]string, len(m.columns))
	for i, name := range m.columns {
		switch name {
		case "body":
			params[i] = c.arg(e.body) + "::bytea"
		case "members":
			params[i] = c.arg(e.members) + "::bytea[]"
		case "upto":
			params[i] = c.arg(e.upto) + "::bigint"
		case "extra":
			params[i] = c.arg(e.extra) + "::bigint[]"
		}
	}
	c.with(m.name+"_"+strconv.Itoa(len(c.parts)), "("+m.insert("SELECT "+c.arg(key(ref))+"::bytea, 1, "+c.arg(c.plan.id[:])+"::bytea, "+
		strings.Join(params, ", ")+c.from())+")")
}
