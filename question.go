package idem

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// question is what identity is resolved from: everything about an ask that
// does not depend on the ledger.
type question struct {
	ask         Ask
	rules       Rules
	scope       Scope
	source      KeySource
	hash        Hash // see hashed
	hashed      bool
	business    string
	incarnation string
	nonce       string   // of an ask that is its own operation
	op          ID       // the first generation's; zero with SourceOccurrence
	replaced    []string // argument paths whose value is not used

	twinned  bool // the following are set
	slot     ID   // zero: the ask has no twins
	aliases  []ID // alias rows, in the client's order
	delivery ID   // of the slot, in this run
}

// newQuestion derives what the arguments and the host say of the identity. Its
// errors are INVALID_ARGUMENTS.
func newQuestion(ask Ask, rules Rules, incarnation string, nonce func() string) (*question, *Error) {
	q := &question{ask: ask, rules: rules, incarnation: incarnation,
		scope: Scope{Tenant: ask.Tenant, Tool: ask.Tool, Operation: rules.Operation}}
	if err := checkKey("mcp-idem/key", ask.HostKey); err != nil {
		return nil, err
	}
	if err := checkKey("idempotency key", ask.Generic); err != nil {
		return nil, err
	}
	if rules.Key != nil {
		var err error
		if q.business, err = rules.Key(ask.Args); err != nil {
			return nil, invalidArguments(err)
		}
	}
	switch q.source = q.sourceOf(); q.source {
	case SourceOccurrence:
		if err := q.digest(); err != nil {
			return nil, err
		}
		q.twins()
		return q, nil
	case SourceNone:
		q.nonce = nonce()
	}
	q.op = q.operation(1)
	return q, nil
}

// digest hashes the request, once.
func (q *question) digest() *Error {
	if q.hashed {
		return nil
	}
	sel := Selection{Except: q.rules.Ignore}
	if q.rules.Fills != nil {
		sel.Except = append(slices.Clone(q.rules.Ignore), q.rules.Fills)
		if _, ok, err := Find(q.ask.Args, q.rules.Fills); err == nil && ok {
			q.replaced = []string{"." + strings.Join(q.rules.Fills, ".")}
		}
	}
	if q.rules.Key != nil {
		sel.Only = q.rules.Bind
	}
	h, err := HashRequest(q.scope, q.ask.Args, sel)
	if err != nil {
		return invalidArguments(err)
	}
	q.hash, q.hashed = h, true
	return nil
}

// same reports whether the record is of this request. The same bytes are the
// same request without hashing them.
func (q *question) same(r *Record) (bool, *Error) {
	if !r.Expired && bytes.Equal(r.Args, q.ask.Args) {
		return true, nil
	}
	if err := q.digest(); err != nil {
		return false, err
	}
	return r.Hash == q.hash, nil
}

// twins derives what the ask has in common with others of its task. A named ask
// that only replays does without.
func (q *question) twins() {
	if q.twinned || q.source == SourceBusiness || q.ask.Task == "" {
		return
	}
	q.twinned = true
	q.slot = slotID(q.scope, q.incarnation, q.ask.Task, q.hash)
	q.delivery = deliveryID(q.slot, q.ask.Run)
	for _, a := range q.ask.Aliases {
		if row := aliasID(q.slot, a); !slices.Contains(q.aliases, row) {
			q.aliases = append(q.aliases, row)
		}
	}
	if q.ask.Generic != "" {
		q.aliases = append(q.aliases, aliasID(q.slot, "key:"+q.ask.Generic))
	}
}

// invalidArguments turns what reading the arguments says into a refusal.
func invalidArguments(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInvalidArguments, Text: "The arguments cannot be read: " + err.Error() + ". Nothing was sent.", Err: err}
}

func (q *question) sourceOf() KeySource {
	switch {
	case q.rules.Key != nil:
		return SourceBusiness
	case q.ask.HostKey != "":
		return SourceHost
	case q.ask.Task != "" && q.ask.Step != "":
		return SourceStep
	case q.ask.Generic != "":
		return SourceGeneric
	case q.ask.Task != "":
		return SourceOccurrence
	}
	return SourceNone
}

func checkKey(what, s string) *Error {
	if len(s) > 255 {
		return &Error{Code: CodeInvalidArguments, Text: fmt.Sprintf("The %s is %d characters long; at most 255 are allowed. Nothing was sent.", what, len(s))}
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return &Error{Code: CodeInvalidArguments, Text: fmt.Sprintf("The %s has a character that is not printable ASCII at position %d. Nothing was sent.", what, i)}
		}
	}
	return nil
}

// identity is what the source names, and the key as text.
func (q *question) identity() (parts []string, text string) {
	switch q.source {
	case SourceBusiness:
		return []string{q.business}, q.business
	case SourceHost:
		return []string{q.ask.HostKey}, q.ask.HostKey
	case SourceStep:
		return []string{q.ask.Task, q.ask.Step}, q.ask.Step
	case SourceGeneric:
		return []string{q.ask.Generic}, q.ask.Generic
	}
	return []string{q.nonce}, ""
}

func (q *question) operation(generation uint32) ID {
	parts, _ := q.identity()
	return OperationID(q.scope, q.source, q.incarnation, generation, parts...)
}

func (q *question) occurrence(n uint64) ID {
	return occurrenceID(q.scope, q.incarnation, q.ask.Task, q.hash, n)
}

// twin is the n-th occurrence of what r is an occurrence of.
func (r *Record) twin(n uint64) ID { return occurrenceID(r.Scope, r.Incarnation, r.Task, r.Hash, n) }

func occurrenceID(s Scope, incarnation, task string, h Hash, n uint64) ID {
	return OperationID(s, SourceOccurrence, incarnation, 1, task, string(h[:]), strconv.FormatUint(n, 10))
}
