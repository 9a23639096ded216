package pgstore

import (
	"encoding/hex"
	"strconv"
	"strings"

	idem "github.com/mcp-idem/mcp-idem"
)

// operationPut are the columns of an operation that a put sets, beside the
// version.
var operationPut = []string{"change", "state", "tenant", "server", "tool", "task", "created", "due", "lease_token", "lease_end", "body"}

// operations are columns of parameters.
type operations struct {
	plan                              []int32
	id, change, token, body           [][]byte
	state, tenant, server, tool, task []string
	created, leaseEnd, step           []int64
	due                               []*int64
}

// add adds what a plan puts. step is what its version grows by, or whatever else
// the statement makes of it.
func (o *operations) add(n int, p *plan, id idem.ID, step int64, r *idem.Record, body []byte) {
	o.plan, o.id, o.change = append(o.plan, int32(n)), append(o.id, id[:]), append(o.change, p.id[:])
	o.state, o.tenant, o.server = append(o.state, name(string(r.State))), append(o.tenant, name(r.Scope.Tenant)), append(o.server, name(r.Server()))
	o.tool, o.task, o.body = append(o.tool, name(r.Scope.Tool)), append(o.task, name(r.Task)), append(o.body, body)
	o.created, o.leaseEnd, o.step = append(o.created, int64(r.CreatedAt)), append(o.leaseEnd, int64(r.Lease.End)), append(o.step, step)
	o.due, o.token = append(o.due, dueOf(r)), append(o.token, r.Lease.Token[:])
}

func (o *operations) columns() []column {
	return []column{{"plan", "int", o.plan}, {"id", "bytea", o.id}, {"step", "bigint", o.step}, {"change", "bytea", o.change}, {"state", "text", o.state},
		{"tenant", "text", o.tenant}, {"server", "text", o.server}, {"tool", "text", o.tool}, {"task", "text", o.task},
		{"created", "bigint", o.created}, {"due", "bigint", o.due}, {"lease_token", "bytea", o.token},
		{"lease_end", "bigint", o.leaseEnd}, {"body", "bytea", o.body}}
}

// entries are columns of parameters. Arrays of arrays travel as the text of the
// inner ones.
type entries struct {
	plan              []int32
	key, change, body [][]byte
	members, extra    []string
	upto              []int64
}

func (e *entries) add(n int, p *plan, ref idem.Ref, row *entry) {
	e.plan, e.key, e.change = append(e.plan, int32(n)), append(e.key, key(ref)), append(e.change, p.id[:])
	e.body, e.members = append(e.body, row.body), append(e.members, membersText(row.members))
	e.upto, e.extra = append(e.upto, row.upto), append(e.extra, extraText(row.extra))
}

func (e *entries) columns() []column {
	return []column{{"plan", "int", e.plan}, {"key", "bytea", e.key}, {"change", "bytea", e.change}, {"body", "bytea", e.body},
		{"members", "text", e.members}, {"upto", "bigint", e.upto}, {"extra", "text", e.extra}}
}

func membersText(ids [][]byte) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"\\x`)
		b.WriteString(hex.EncodeToString(id))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

func extraText(ns []int64) string {
	texts := make([]string, len(ns))
	for i, n := range ns {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return "{" + strings.Join(texts, ",") + "}"
}
