package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/mcp-idem/mcp-idem"
)

// actionName is what an agent may call an effect of its own.
var actionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// begin claims an effect that the agent is about to have, or tells what is known
// of it.
func (c *Control) begin(ctx context.Context, who Caller, args []byte) (controlAnswer, error) {
	var in struct {
		Action    string          `json:"action"`
		Arguments json.RawMessage `json:"arguments"`
		Step      string          `json:"step"`
	}
	if err := readArgs(args, &in); err != nil {
		return controlAnswer{}, err
	}
	switch {
	case !actionName.MatchString(in.Action):
		return controlAnswer{}, fmt.Errorf("action %q: want 1 to 100 letters, digits, dots, _ and -, like send_invoice", in.Action)
	case len(in.Arguments) > 0 && !isObject(in.Arguments):
		return controlAnswer{}, errors.New("arguments must be an object: what the effect is about, the same whenever the same is meant")
	case who.Task == "":
		return controlAnswer{}, errors.New("no task is known, and an effect needs one to be found again: the client has to name its task")
	}
	ask := idem.Ask{Tenant: who.Tenant, Tool: OutsideServer + "/" + in.Action, Args: in.Arguments, Task: who.Task, Run: who.Run, Step: who.Step, Conn: who.Conn}
	if ask.Step == "" {
		ask.Step = in.Step
	}
	ctx, cancel := context.WithTimeout(ctx, beginWait)
	defer cancel()
	asker := ctx
	mine := make(chan idem.Dispatch, 1)
	answer := c.cfg.Guard.Do(ctx, ask, idem.Effect{Run: func(ctx context.Context, d idem.Dispatch) idem.Outcome {
		b, err := c.hold(d)
		if err == nil && asker.Err() != nil { // nobody would have it
			c.let(d)
			err = errors.New("the agent has left")
		}
		if err != nil {
			return idem.Outcome{Class: idem.ClassNotSent, Text: err.Error(), Ended: idem.EndByNotSent}
		}
		mine <- d
		cancel() // the agent has the effect now, and does not wait for its end
		select {
		case o := <-b.end:
			return o
		case <-ctx.Done():
			return idem.Outcome{Class: idem.ClassAmbiguous, Text: "it was given up before it was completed"}
		}
	}})
	select {
	case d := <-mine:
		return controlAnswer{
			fmt.Sprintf("Begun as %[1]s. Have the effect once, now, with %[1]s as its key where the outside system takes one; then say what came of it with idem_complete.", d.Key),
			beginView{Status: "begun", Op: d.Key, Attempt: d.Attempt},
		}, nil
	default:
	}
	return known(&answer), nil
}

// hold notes that an agent is having an effect.
func (c *Control) hold(d idem.Dispatch) (*begun, error) {
	op, ok := idem.ParseID(d.Key)
	if !ok {
		return nil, fmt.Errorf("%q is no id of an operation", d.Key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, errors.New("the gateway is ending; nothing was begun")
	case len(c.open) >= openLimit:
		return nil, fmt.Errorf("%d effects are begun and not completed; nothing was begun", openLimit)
	}
	b := &begun{attempt: d.Attempt, end: make(chan idem.Outcome, 1)}
	c.open[op] = b
	return b, nil
}

func (c *Control) let(d idem.Dispatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	op, _ := idem.ParseID(d.Key) // it was one in hold
	delete(c.open, op)
}

// beginView is the answer to idem_begin for programs.
type beginView struct {
	Status     string          `json:"status"`
	Op         string          `json:"op,omitempty"`
	Attempt    uint32          `json:"attempt,omitempty"`
	ExternalID string          `json:"external_id,omitempty"`
	Code       string          `json:"code,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
}

// known is what the ledger has of an effect that is not to be had now.
func known(a *idem.Answer) controlAnswer {
	v := beginView{Status: "known"}
	if a.Op != (idem.ID{}) {
		v.Op = a.Op.String()
	}
	if r := a.Record; r != nil {
		v.Attempt, v.ExternalID = attemptOf(r), r.ExternalID
	}
	if json.Valid(a.Result) {
		v.Result = a.Result
	}
	if a.Err == nil {
		a.Deliver()(nil)
		if r := a.Record; r != nil && r.State == idem.StateFailedFinal {
			v.Status = "failed"
			return controlAnswer{"It was said before not to have been done. It is not begun anew by itself.", v}
		}
		v.Status = "done"
		return controlAnswer{"It is done already: do not do it.", v}
	}
	v.Code = string(a.Err.Code)
	switch a.Err.Code {
	case idem.CodeInProgress:
		v.Status = "in_progress"
		return controlAnswer{"It is begun already, and what came of it is not known yet: do not do it. Whoever has done it says so with idem_complete.", v}
	case idem.CodeUnknown, idem.CodeNeedsReview:
		v.Status = "unknown"
	default:
		v.Status = "refused"
	}
	return controlAnswer{"Do not do it. " + refusalText(a), v}
}

// complete records what came of an effect that was begun.
func (c *Control) complete(ctx context.Context, who Caller, args []byte) (controlAnswer, error) {
	var in struct {
		Op         string          `json:"op"`
		Outcome    string          `json:"outcome"`
		ExternalID string          `json:"external_id"`
		Result     json.RawMessage `json:"result"`
		Text       string          `json:"text"`
	}
	if err := readArgs(args, &in); err != nil {
		return controlAnswer{}, err
	}
	r, err := c.owned(ctx, who, in.Op)
	if err != nil {
		return controlAnswer{}, err
	}
	if r.Server() != OutsideServer {
		return controlAnswer{}, fmt.Errorf("%s is an operation of %s, which reports by itself: idem_complete is for what idem_begin began", in.Op, r.Scope.Tool)
	}
	if len(in.Result) > completeLimit {
		return controlAnswer{}, fmt.Errorf("the result has %d bytes, at most %d are kept: give external_id, and leave it out", len(in.Result), completeLimit)
	}
	var out idem.Outcome
	switch in.Outcome {
	case "done":
		out = idem.Outcome{Class: idem.ClassSuccess, Result: bytes.Clone(in.Result), ExternalID: in.ExternalID, Ended: idem.EndByAnswer}
		if out.Result != nil {
			out.Kind = idem.ResultValue
		}
	case "not_done":
		out = idem.Outcome{Class: idem.ClassReported, Text: in.Text, Ended: idem.EndByAnswer}
	case "unknown":
		out = idem.Outcome{Class: idem.ClassAmbiguous, Text: in.Text}
	default:
		return controlAnswer{}, fmt.Errorf("outcome %q: want done, not_done or unknown", in.Outcome)
	}
	if r, err = c.record(ctx, r, out); err != nil {
		return controlAnswer{}, err
	}
	v := viewOf(r, r.UpdatedAt)
	return controlAnswer{fmt.Sprintf("Recorded: %s is %s.", v.Op, v.State), v}, nil
}

// record writes an outcome down as a report, and then ends the attempt if it is
// one of this process. So it is told what the ledger has, also where a timeout or
// a person was faster. What cannot be written now, the attempt goes on trying.
func (c *Control) record(ctx context.Context, r *idem.Record, out idem.Outcome) (*idem.Record, error) {
	op := r.Op
	c.mu.Lock()
	b := c.open[op]
	delete(c.open, op)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	attempt := r.Last
	if b != nil {
		attempt = b.attempt
	}
	after, err := c.cfg.Guard.Report(ctx, op, attempt, out)
	if b != nil {
		b.end <- out
	}
	switch {
	case err != nil && b != nil:
		return nil, fmt.Errorf("%s: it is taken, and not yet written down: %w", op, err)
	case err != nil:
		return nil, fmt.Errorf("%s: it cannot be recorded: %w", op, err)
	}
	after.Op = op
	return after, nil
}
