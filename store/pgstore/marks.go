package pgstore

import (
	"strings"

	idem "github.com/mcp-idem/mcp-idem"
)

// markKind is how a kind of mark is merged into the row that is there.
type markKind struct {
	name    string
	columns []string // beside key, version and change
	set     string   // ON CONFLICT DO UPDATE SET …
}

var (
	aliasMark = markKind{"alias", []string{"body"}, `body = excluded.body WHERE e.version = 0`}

	twinMark = markKind{"twin", []string{"body", "members"}, `body = CASE WHEN e.version = 0 THEN excluded.body ELSE e.body END,
  members = coalesce(e.members, '{}') || ARRAY (SELECT t FROM unnest(excluded.members) t WHERE e.members IS NULL OR t <> ALL (e.members))
  WHERE e.version = 0 OR NOT excluded.members <@ e.members`}

	deliveryMark = markKind{"delivery", []string{"upto", "extra"}, `(upto, extra) = (
   SELECT ` + all + ` + count(*) FILTER (WHERE x - n = ` + all + `), coalesce(array_agg(x ORDER BY x) FILTER (WHERE x - n <> ` + all + `), '{}')
   FROM (SELECT x, row_number() OVER (ORDER BY x) AS n FROM (SELECT DISTINCT unnest(coalesce(e.extra, '{}') || excluded.extra) AS x) a WHERE x > ` + all + `) b)
  WHERE e.version = 0 OR excluded.upto > e.upto
   OR EXISTS (SELECT FROM unnest(excluded.extra) x WHERE x > e.upto AND x <> ALL (e.extra))`}
)

// all: the numbers up to this one are delivered. Those above that follow without
// a gap move it.
const all = `greatest(coalesce(e.upto, 0), excluded.upto)`

// insert is the statement that merges rows of a query into what is there.
func (m markKind) insert(query string) string {
	return "INSERT INTO {schema}.entry AS e (key, version, change, " + strings.Join(m.columns, ", ") + ") " + query +
		" ON CONFLICT (key) DO UPDATE SET version = e.version + 1, change = excluded.change, " + m.set
}

// eachMark calls f with every mark of the plan but those of leases.
func (p *plan) eachMark(f func(m markKind, ref idem.Ref, e *entry)) {
	n := 0
	for _, set := range []struct {
		kind markKind
		rows []idem.Row
	}{{aliasMark, p.aliases}, {twinMark, p.twins}, {deliveryMark, p.handed}} {
		for i := range set.rows {
			f(set.kind, set.rows[i].Ref, &p.merges[n])
			n++
		}
	}
}

// merge joins the marks of a group with what is there.
func (st *statement) merge(group []*plan) {
	rows := map[string]*entries{}
	for n, p := range group {
		p.eachMark(func(m markKind, ref idem.Ref, e *entry) {
			if rows[m.name] == nil {
				rows[m.name] = &entries{}
			}
			rows[m.name].add(n, p, ref, e)
		})
	}
	// The server carries out the last part of a statement first. So marks are made
	// in one order, here and by single, and nobody waits for each other.
	for _, m := range []markKind{deliveryMark, twinMark, aliasMark} {
		e := rows[m.name]
		if e == nil {
			continue
		}
		columns := make([]string, len(m.columns))
		for i, name := range m.columns {
			columns[i] = "p." + name + casts[name]
		}
		st.with(m.name+"_marked", "("+m.insert("SELECT p.key, 1, p.change, "+strings.Join(columns, ", ")+" FROM "+st.rows("p", e.columns()...)+allowed+" ORDER BY p.key")+")")
	}
}

// casts are of columns whose arrays travel as text.
var casts = map[string]string{"members": "::bytea[]", "extra": "::bigint[]"}
