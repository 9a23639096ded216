package suggest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Tool is what a server says of one of its tools.
type Tool struct {
	Name        string
	Annotations annotations
	Input       schema `json:"inputSchema"`
	Output      schema `json:"outputSchema"`
}

type annotations struct {
	ReadOnly    *bool `json:"readOnlyHint"`
	Destructive *bool `json:"destructiveHint"`
	Idempotent  *bool `json:"idempotentHint"`
}

type schema struct {
	Type       any               `json:"type"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// ReadTool reads a tool's definition as tools/list has it.
func ReadTool(definition []byte) (t Tool, err error) {
	if err := json.Unmarshal(definition, &t); err != nil {
		return t, fmt.Errorf("the definition of a tool cannot be read: %w", err)
	}
	return t, nil
}

var (
	readVerbs  = []string{"get", "list", "search", "find", "read", "query", "fetch", "describe", "show", "lookup", "count", "view", "browse", "retrieve"}
	writeVerbs = []string{"create", "add", "update", "set", "delete", "remove", "send", "write", "edit", "post", "put", "insert", "append", "move", "rename", "run", "execute",
		"pay", "refund", "charge", "cancel", "close", "open", "merge", "push", "publish", "upload", "start", "stop", "book", "order", "submit", "mark", "save", "upsert", "replace", "reset"}
	camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// words are those of a name, in lower case: createTicket, create_ticket and
// create-ticket have the same.
func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(camel.ReplaceAllString(name, "${1}_${2}")), func(r rune) bool { return strings.ContainsRune("_-./: ", r) })
}

// nouns are the words that are no verbs, each in the singular.
func nouns(name string) (out []string) {
	for _, w := range words(name) {
		if !slices.Contains(readVerbs, w) && !slices.Contains(writeVerbs, w) {
			out = append(out, singular(w))
		}
	}
	return out
}

func singular(w string) string {
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && len(w) > 3:
		return w[:len(w)-1]
	}
	return w
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// verb is the kind of verb in the name: reads and writes.
func (t *Tool) verb() (reads, writes bool) {
	w := words(t.Name)
	reads = len(w) > 0 && slices.Contains(readVerbs, w[0])
	return reads, slices.ContainsFunc(w, func(w string) bool { return slices.Contains(writeVerbs, w) })
}

// reads: name and annotations agree, or one of them says so and the other
// nothing against it. sure is false where only the server's word says so.
func (t *Tool) reads() (reads, sure bool) {
	byName, writes := t.verb()
	a := t.Annotations
	switch {
	case isFalse(a.ReadOnly) || writes || isTrue(a.Destructive) && !isTrue(a.ReadOnly):
		return false, false
	case byName:
		return true, true
	}
	return isTrue(a.ReadOnly), false
}

// references are arguments that outside systems keep for their callers.
var references = []string{"external_reference", "externalReference", "external_id", "externalId", "client_reference", "client_reference_id", "clientReferenceId",
	"idempotency_key", "idempotencyKey", "client_token", "clientToken", "request_id", "requestId", "correlation_id", "correlationId", "dedupe_key", "reference"}

// reference is an argument that could carry the key; empty: there is none.
func (t *Tool) reference() string {
	for _, r := range references {
		if _, ok := t.Input.Properties[r]; ok {
			return r
		}
	}
	return ""
}

// ids is jq for the ids in the tool's structured result; empty: its schema does
// not tell.
func (t *Tool) ids() string {
	var found []string
	for name, p := range t.Output.Properties {
		if p.Items == nil {
			continue
		}
		if _, ok := p.Items.Properties["id"]; ok && plain.MatchString(name) {
			found = append(found, "[.structuredContent."+name+"[].id]")
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
