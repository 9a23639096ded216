package policy

import (
	"fmt"

	"github.com/itchyny/gojq"

	idem "github.com/mcp-idem/mcp-idem"
)

// ParsePath reads a plain path: names that lead through objects, as in .a.b or
// .a["b c"]. Anything else that jq knows is an error.
func ParsePath(text string) (idem.Path, error) {
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("bad path: %w", err)
	}
	p, ok := plainPath(query)
	if !ok || len(p) == 0 {
		return nil, fmt.Errorf("%s is no plain path; write it like .a.b or .a[\"b c\"]", text)
	}
	return p, nil
}

func plainPath(q *gojq.Query) (idem.Path, bool) {
	if q.Op != 0 || q.Term == nil || q.Meta != nil || len(q.Imports)+len(q.FuncDefs) > 0 {
		return nil, false
	}
	path := idem.Path{}
	switch q.Term.Type {
	case gojq.TermTypeIdentity:
	case gojq.TermTypeIndex:
		name, ok := plainName(q.Term.Index)
		if !ok {
			return nil, false
		}
		path = append(path, name)
	default:
		return nil, false
	}
	for _, s := range q.Term.SuffixList {
		if s.Iter || s.Optional || s.Index == nil {
			return nil, false
		}
		name, ok := plainName(s.Index)
		if !ok {
			return nil, false
		}
		path = append(path, name)
	}
	return path, true
}

func plainName(i *gojq.Index) (string, bool) {
	if i.IsSlice || i.End != nil {
		return "", false
	}
	str := i.Str
	if q := i.Start; q != nil { // .["a"]
		if q.Op != 0 || q.Term == nil || q.Term.Type != gojq.TermTypeString || len(q.Term.SuffixList)+len(q.FuncDefs) > 0 {
			return "", false
		}
		str = q.Term.Str
	}
	if str != nil {
		return str.Str, len(str.Queries) == 0
	}
	return i.Name, i.Name != ""
}
