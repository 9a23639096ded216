package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	idem "github.com/mcp-idem/mcp-idem"
)

// row is an operation as ops list --json prints it; empty fields are left out.
type row struct {
	Op          string `json:"op"`
	Tenant      string `json:"tenant"`
	Tool        string `json:"tool"`
	Operation   string `json:"operation"`
	Key         string `json:"key,omitempty"`
	KeySource   string `json:"key_source"`
	Generation  uint32 `json:"generation,omitempty"`
	Task        string `json:"task,omitempty"`
	Run         string `json:"run,omitempty"`
	Step        string `json:"step,omitempty"`
	State       string `json:"state"`
	Attempt     uint32 `json:"attempt,omitempty"`
	May         bool   `json:"may_have_applied,omitempty"`
	ExternalID  string `json:"external_id,omitempty"`
	ErrorClass  string `json:"error_class,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Error       string `json:"error,omitempty"`
	CreatedAt   string `json:"created_at,omitempty"`
	StartedAt   string `json:"started_at,omitempty"`
	CommittedAt string `json:"committed_at,omitempty"`
	Unknown     string `json:"unknown_since,omitempty"`
	SettledAt   string `json:"settled_at,omitempty"`
	UpdatedAt   string `json:"updated_at,omitempty"`
	ExpiresAt   string `json:"expires_at,omitempty"`
	Version     uint64 `json:"version"`
	Expired     bool   `json:"expired,omitempty"`

	created idem.Instant
}

func rowOf(r *idem.Record, now idem.Instant) row {
	class, text := r.Class, r.Text
	if class == idem.ClassSuccess || r.State == idem.StateCommitted { // how it came to be known is no error
		class, text = "", ""
	}
	return row{
		created: r.CreatedAt,
		Op:      r.Op.String(), Tenant: r.Scope.Tenant, Tool: r.Scope.Tool, Operation: r.Scope.Operation,
		Key: r.Key, KeySource: string(r.Source), Generation: r.Generation, Task: r.Task, Run: r.Run, Step: r.Step,
		State: string(r.Shown(now)), Attempt: r.Last, May: r.MayHaveApplied(), ExternalID: r.ExternalID,
		ErrorClass: string(class), Reason: string(r.Reason), Error: text,
		CreatedAt: stamp(r.CreatedAt), StartedAt: stamp(r.StartedAt), CommittedAt: stamp(r.CommittedAt), Unknown: stamp(r.UnknownSince),
		SettledAt: stamp(r.SettledAt), UpdatedAt: stamp(r.UpdatedAt), ExpiresAt: stamp(r.ExpiresAt), Version: uint64(r.Version), Expired: r.Expired,
	}
}

func stamp(i idem.Instant) string {
	if i == 0 {
		return ""
	}
	return i.Time().Format(time.RFC3339Nano)
}

func (r row) note() string {
	switch {
	case r.Reason != "":
		return r.Reason
	case r.ErrorClass != "":
		return r.ErrorClass
	}
	return r.ExternalID
}

// detail is an operation as ops show --json prints it.
type detail struct {
	row
	Args      json.RawMessage `json:"arguments,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Size      int64           `json:"result_size,omitempty"`
	Absence   string          `json:"absence,omitempty"`
	Duplicate uint32          `json:"duplicates,omitempty"`
	RetryAt   string          `json:"retry_at,omitempty"`
	Queries   uint32          `json:"queries,omitempty"`
	NextQuery string          `json:"next_query_at,omitempty"`
	LastQuery string          `json:"last_query_error,omitempty"`
	Replaced  []string        `json:"replaced_arguments,omitempty"`
	Granted   bool            `json:"granted,omitempty"`
	Attempts  []attemptRow    `json:"attempts,omitempty"`
	Decisions []decisionRow   `json:"decisions,omitempty"`
}

type attemptRow struct {
	N          uint32 `json:"attempt"`
	Start      string `json:"started_at"`
	End        string `json:"ended_at,omitempty"`
	EndBy      string `json:"ended_by,omitempty"`
	Class      string `json:"class,omitempty"`
	Error      string `json:"error,omitempty"`
	May        bool   `json:"may_have_applied,omitempty"`
	Closed     string `json:"closed_by,omitempty"`
	ExternalID string `json:"external_id,omitempty"`
}

type decisionRow struct {
	Verb    string `json:"as"`
	Reason  string `json:"reason"`
	At      string `json:"at"`
	Command string `json:"command_id,omitempty"`
	Version uint64 `json:"on_version,omitempty"`
}

func detailOf(r *idem.Record, now idem.Instant) detail {
	d := detail{row: rowOf(r, now), Args: r.Args, Result: r.Result, Size: r.ResultSize, Absence: string(r.Absence), Duplicate: r.Duplicates,
		RetryAt: stamp(r.RetryAt), Queries: r.Reconcile.Count, NextQuery: stamp(r.Reconcile.Next), LastQuery: r.Reconcile.Text,
		Replaced: r.ReplacedArgs, Granted: r.Granted}
	for _, a := range r.Attempts {
		d.Attempts = append(d.Attempts, attemptRow{N: a.N, Start: stamp(a.Start), End: stamp(a.End), EndBy: string(a.EndBy), Class: string(a.Class),
			Error: a.Text, May: a.MayApplied, Closed: string(a.Closed), ExternalID: a.ExternalID})
	}
	for _, x := range r.Decisions {
		d.Decisions = append(d.Decisions, decisionRow{Verb: x.Verb, Reason: x.Reason, At: stamp(x.At), Command: x.Command, Version: uint64(x.Saw)})
	}
	return d
}

func (p *program) printDetail(r *idem.Record, now idem.Instant) error {
	d := detailOf(r, now)
	if p.flags.json {
		return p.printJSON(d)
	}
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(p.out, "%-14s %s\n", name, clean(value))
		}
	}
	line("op", d.Op)
	line("state", d.State)
	line("reason", d.Reason)
	line("tool", d.Tool)
	line("tenant", d.Tenant)
	line("key", d.KeySource+" "+d.Key)
	line("task", d.Task)
	line("step", d.Step)
	line("arguments", string(d.Args))
	line("external id", d.ExternalID)
	line("error", d.Error)
	line("created", d.CreatedAt)
	line("unknown since", d.Unknown)
	line("settled", d.SettledAt)
	line("next query", d.NextQuery)
	line("query said", d.LastQuery)
	line("result", string(d.Result))
	for _, a := range d.Attempts {
		line(fmt.Sprintf("attempt %d", a.N), fmt.Sprintf("%s from %s to %s %s %s", orNone(a.Class), a.Start, orNone(a.End), a.EndBy, a.Error))
	}
	for _, x := range d.Decisions {
		line("decision", fmt.Sprintf("%s at %s: %s", x.Verb, x.At, x.Reason))
	}
	line("version", fmt.Sprint(d.Version))
	return nil
}

// clean shows control characters as escapes: what a tool or a client wrote must
// not steer the terminal.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) || r == utf8.RuneError {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// short is a cell of a table.
func short(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return clean(s)
}

func orNone(s string) string {
	if s == "" {
		return "(none yet)"
	}
	return s
}
