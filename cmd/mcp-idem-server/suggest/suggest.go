package suggest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

// Proposal is what is proposed for one tool.
type Proposal struct {
	Tool    string         `json:"tool"` // server/tool
	Policy  *config.Policy `json:"policy,omitempty"`
	Certain bool           `json:"certain"` // names and schemas tell; else a person has to complete it
	Why     string         `json:"why"`
}

// For proposes policies for the tools of a server, reads first: the first match
// decides.
func For(server string, tools []Tool) []Proposal {
	tools = slices.Clone(tools)
	slices.SortStableFunc(tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	var reads, writes []Proposal
	for i := range tools {
		t := &tools[i]
		full := server + "/" + t.Name
		if read, sure := t.reads(); read {
			p := Proposal{Tool: full, Policy: &config.Policy{Match: full, Effect: "read"}, Certain: sure, Why: "its name says that it reads"}
			if !sure {
				p.Why = "only the server says that it reads (readOnlyHint): accept it if you know"
			}
			reads = append(reads, p)
			continue
		}
		writes = append(writes, write(full, t, queries(t, tools)))
	}
	return append(reads, writes...)
}

// queries are the tools that surely read the same nouns, the likeliest first;
// where there are none, those that read them among others.
func queries(t *Tool, tools []Tool) []*Tool {
	about := nouns(t.Name)
	if len(about) == 0 {
		return nil
	}
	var same, more []*Tool
	for i := range tools {
		of := nouns(tools[i].Name)
		switch _, sure := tools[i].reads(); {
		case !sure:
		case slices.Equal(of, about):
			same = append(same, &tools[i])
		case !slices.ContainsFunc(about, func(n string) bool { return !slices.Contains(of, n) }):
			more = append(more, &tools[i])
		}
	}
	if len(same) == 0 {
		same = more
	}
	slices.SortStableFunc(same, func(a, b *Tool) int { return rank(a.Name) - rank(b.Name) })
	return same
}

// rank: a search by key finds more than a list, which may be cut, and a get
// needs the id that is not known.
func rank(name string) int {
	for i, verbs := range [][]string{{"search", "find", "query", "lookup"}, {"list", "browse", "view", "show", "count"}} {
		if slices.Contains(verbs, words(name)[0]) {
			return i
		}
	}
	return 2
}

func write(full string, t *Tool, queries []*Tool) Proposal {
	if len(queries) == 0 {
		p := Proposal{Tool: full, Why: "no tool here seems to read what it writes: an outcome that is not known waits for a person"}
		if isTrue(t.Annotations.Idempotent) {
			p.Policy = &config.Policy{Match: full, Effect: "idempotent"}
			p.Why = "the server says that repeating it is harmless (idempotentHint): accept it if you know"
		}
		return p
	}
	q, ref := queries[0], t.reference()
	for _, other := range queries { // one that takes the same reference is better than any
		if _, ok := other.Input.Properties[ref]; ok && other.ids() != "" {
			q = other
			break
		}
	}
	found := q.ids()
	_, asks := q.Input.Properties[ref]
	r := &config.Reconcile{Tool: q.Name, Found: found}
	p := Proposal{Tool: full, Policy: &config.Policy{Match: full, Reconcile: r}}
	var todo []string
	if found == "" {
		r.Found = "[.structuredContent.items[].id]"
		todo = append(todo, "say where its result has the ids")
	}
	if ref != "" && asks {
		p.Policy.Forward = &config.Forward{Argument: ref}
		r.Arguments = "{" + ref + ": $key}"
	} else {
		r.Baseline = true
		todo = append(todo, "say with which arguments it finds what this call makes")
	}
	if p.Certain = len(todo) == 0; p.Certain {
		p.Why = fmt.Sprintf("%s seems to find it by %s; see that it does, at once and for any caller", q.Name, ref)
	} else {
		p.Why = fmt.Sprintf("%s seems to read the same: %s", q.Name, strings.Join(todo, ", and "))
	}
	return p
}

// Text is a configuration's policies, as JSON with comments. What is not certain
// is a comment in it.
func Text(proposals []Proposal) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("\"policies\": [\n")
	for _, p := range proposals {
		fmt.Fprintf(&b, "  // %s: %s.\n", printable(p.Tool), printable(p.Why))
		if p.Policy == nil {
			continue
		}
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		if err := e.Encode(p.Policy); err != nil {
			return nil, err
		}
		mark := ""
		if !p.Certain {
			mark = "// "
		}
		fmt.Fprintf(&b, "  %s%s,\n", mark, bytes.TrimSpace(line.Bytes()))
	}
	b.WriteString("]\n")
	return b.Bytes(), nil
}

// printable keeps a name in its comment.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, name)
}
