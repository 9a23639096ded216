package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/checkpoint"
)

// OutsideServer stands in the place of a server's name for effects that agents
// have by themselves, outside of any server, and tell of by idem_begin and
// idem_complete. The guard's policy has to know it.
const OutsideServer = "outside"

const (
	beginWait     = 5 * time.Second  // for the claim, or for what is known
	completeWait  = 10 * time.Second // for the outcome to be recorded
	completeLimit = 1 << 20          // of a result, in bytes
	openLimit     = 1000             // effects begun and not completed, in this process
)

// ControlGuard is what the control tools need of an [idem.Guard].
type ControlGuard interface {
	Do(ctx context.Context, ask idem.Ask, effect idem.Effect) idem.Answer
	Report(ctx context.Context, op idem.ID, attempt uint32, out idem.Outcome) (*idem.Record, error)
}

// ControlConfig says what the control tools work on. Every field is required but
// Log.
type ControlConfig struct {
	Guard ControlGuard
	Store idem.Store
	Log   zerolog.Logger
}

// Control are the tools by which an agent looks at its task and tells of effects
// outside of the gateway. What an operator decides is not among them. It is safe
// for concurrent use.
//
// An effect that was begun is an attempt like any other: claimed, with a lease
// that is kept up while this process lives. If the process ends before it is
// completed, its outcome is unknown and waits for a person, or for an
// idem_complete that comes after all: a late truth is evidence. That an agent
// says "not done" is a claim and no proof. A policy with a timeout for outside/*
// calls a person where an agent has gone and this process goes on.
type Control struct {
	cfg ControlConfig

	mu     sync.Mutex
	open   map[idem.ID]*begun
	closed bool
}

// begun is an effect that an agent is having.
type begun struct {
	attempt uint32
	end     chan idem.Outcome
}

// NewControl returns the control tools.
func NewControl(cfg ControlConfig) *Control {
	return &Control{cfg: cfg, open: map[idem.ID]*begun{}}
}

// Close makes the outcome of everything that is begun and not completed unknown.
// Call it before the guard is closed.
func (c *Control) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for op, b := range c.open {
		delete(c.open, op)
		b.end <- idem.Outcome{Class: idem.ClassAmbiguous, Text: "the gateway ended before the effect was completed"}
	}
}

// Call implements [ControlTools].
func (c *Control) Call(ctx context.Context, who Caller, name string, args []byte) []byte {
	var say controlAnswer
	var err error
	switch name {
	case "idem_task":
		say, err = c.task(ctx, who, args)
	case "idem_status":
		say, err = c.status(ctx, who, args)
	case "idem_begin":
		say, err = c.begin(ctx, who, args)
	case "idem_complete":
		say, err = c.complete(ctx, who, args)
	case "idem_note":
		say, err = c.note(ctx, who, args)
	default:
		err = fmt.Errorf("there is no tool %s", name)
	}
	if err != nil {
		return made(err.Error(), true)
	}
	return say.result()
}

// controlAnswer is what a control tool says: a text for the model, and the same
// for programs.
type controlAnswer struct {
	text string
	data any
}

func (a controlAnswer) result() []byte {
	data, err := json.Marshal(a.data)
	if err != nil {
		return made(err.Error(), true)
	}
	out, err := setMembers(made(a.text, false), field{"structuredContent", data})
	if err != nil {
		return made(err.Error(), true)
	}
	return out
}

// readArgs reads arguments of which none may be unknown.
func readArgs(args []byte, into any) error {
	if len(args) == 0 {
		args = []byte(`{}`)
	}
	if err := strictJSON(args, into); err != nil {
		return fmt.Errorf("the arguments cannot be read: %w", err)
	}
	return nil
}

// owned is an operation of the caller's tenant.
func (c *Control) owned(ctx context.Context, who Caller, text string) (*idem.Record, error) {
	op, ok := idem.ParseID(text)
	if !ok {
		return nil, fmt.Errorf("op %q is no id of an operation: it is what idem_begin and mcp-idem/op show, 32 characters", text)
	}
	snap, err := c.cfg.Store.Load(ctx, opRef(op))
	if err != nil {
		return nil, fmt.Errorf("the ledger cannot be read: %w", err)
	}
	r := snap.Operation(op)
	if r == nil || r.Scope.Tenant != who.Tenant {
		return nil, fmt.Errorf("there is no operation %s", text)
	}
	r.Op = op
	return r, nil
}

func opRef(op idem.ID) idem.Ref { return idem.Ref{Kind: idem.KindOperation, ID: op} }

// operationView is an operation as control tools show it.
type operationView struct {
	Op         string          `json:"op"`
	Tool       string          `json:"tool"`
	Step       string          `json:"step,omitempty"`
	State      string          `json:"state"`
	Attempt    uint32          `json:"attempt,omitempty"`
	ExternalID string          `json:"external_id,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	CreatedAt  string          `json:"created_at,omitempty"`
}

func viewOf(r *idem.Record, now idem.Instant) operationView {
	v := operationView{Op: r.Op.String(), Tool: r.Scope.Tool, Step: r.Step, State: string(r.Shown(now)), Attempt: attemptOf(r), ExternalID: r.ExternalID, Reason: string(r.Reason)}
	if r.CreatedAt != 0 {
		v.CreatedAt = r.CreatedAt.Time().Format(time.RFC3339)
	}
	return v
}

func (c *Control) task(ctx context.Context, who Caller, args []byte) (controlAnswer, error) {
	var in struct {
		Task string `json:"task"`
	}
	if err := readArgs(args, &in); err != nil {
		return controlAnswer{}, err
	}
	if in.Task == "" {
		in.Task = who.Task
	}
	if in.Task == "" {
		return controlAnswer{}, errors.New("no task is known: name one")
	}
	s, err := checkpoint.Tasks{Store: c.cfg.Store, Tenant: who.Tenant}.Read(ctx, in.Task)
	if err != nil {
		return controlAnswer{}, err
	}
	out := struct {
		Task      string          `json:"task"`
		Completed []operationView `json:"completed"`
		Unsettled []operationView `json:"unsettled"`
		Failed    []operationView `json:"failed"`
		Notes     []noteView      `json:"notes"`
	}{Task: in.Task, Completed: views(s.Completed(), s.Now), Unsettled: views(s.Unsettled(), s.Now), Failed: views(s.Failed(), s.Now), Notes: []noteView{}}
	for _, n := range s.Notes {
		out.Notes = append(out.Notes, noteView{n.Kind, n.Name, n.Value, n.Step, n.At.Time().Format(time.RFC3339)})
	}
	text := fmt.Sprintf("Task %s: %d done, %d unsettled, %d failed, %d notes.", in.Task, len(out.Completed), len(out.Unsettled), len(out.Failed), len(out.Notes))
	return controlAnswer{text, out}, nil
}

type noteView struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Value string `json:"value"`
	Step  string `json:"step,omitempty"`
	At    string `json:"at"`
}

func views(rs []*idem.Record, now idem.Instant) []operationView {
	out := []operationView{}
	for _, r := range rs {
		out = append(out, viewOf(r, now))
	}
	return out
}

func (c *Control) status(ctx context.Context, who Caller, args []byte) (controlAnswer, error) {
	var in struct {
		Op string `json:"op"`
	}
	if err := readArgs(args, &in); err != nil {
		return controlAnswer{}, err
	}
	r, err := c.owned(ctx, who, in.Op)
	if err != nil {
		return controlAnswer{}, err
	}
	now, err := c.cfg.Store.Clock(ctx)
	if err != nil {
		return controlAnswer{}, fmt.Errorf("the ledger cannot be read: %w", err)
	}
	v := viewOf(r, now)
	if json.Valid(r.Result) {
		v.Result = r.Result
	}
	return controlAnswer{fmt.Sprintf("%s of %s is %s.", v.Op, v.Tool, v.State), v}, nil
}

func (c *Control) note(ctx context.Context, who Caller, args []byte) (controlAnswer, error) {
	var in struct {
		Kind  string `json:"kind"`
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	if err := readArgs(args, &in); err != nil {
		return controlAnswer{}, err
	}
	if in.Kind == "" {
		in.Kind = checkpoint.KindNote
	}
	if who.Task == "" {
		return controlAnswer{}, errors.New("no task is known, and a note needs one: the client has to name its task")
	}
	err := checkpoint.Tasks{Store: c.cfg.Store, Tenant: who.Tenant}.Note(ctx, who.Task, idem.Note{Kind: in.Kind, Name: in.Name, Value: in.Value, Step: who.Step, Run: who.Run})
	if err != nil {
		return controlAnswer{}, err
	}
	return controlAnswer{fmt.Sprintf("Noted for task %s.", who.Task), in}, nil
}
