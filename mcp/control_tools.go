package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// controlDefinitions are the control tools as clients list them.
var controlDefinitions = []string{
	`{"name":"idem_task","title":"Open or resume a task","description":"Tells where a task stands: which steps are done, with their keys and external ids, what is unsettled, what failed, and what was noted. Call it first when you resume work.",` +
		`"inputSchema":{"type":"object","properties":{"task":{"type":"string","description":"id of the task; the one that the client has named where it is left out"}},"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":true,"openWorldHint":false}}`,
	`{"name":"idem_status","title":"Look at one operation","description":"Tells the state of one operation by its id, as mcp-idem/op in a result's _meta, or idem_begin, gave it.",` +
		`"inputSchema":{"type":"object","properties":{"op":{"type":"string","description":"id of the operation"}},"required":["op"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":true,"openWorldHint":false}}`,
	`{"name":"idem_begin","title":"Begin an effect","description":"Call it before you have an effect without a tool of this gateway (a command that you run, a form that you send). It says whether the effect is to be had now (status begun), or what is known of it. Never have the effect with another status.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"action":{"type":"string","description":"name of the kind of effect, like send_invoice"},` +
		`"arguments":{"type":"object","description":"what the effect is about; the same whenever the same effect is meant"},` +
		`"step":{"type":"string","description":"name of the step of the task, where there may be several effects with the same arguments"}},` +
		`"required":["action"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}}`,
	`{"name":"idem_complete","title":"Say what came of an effect","description":"Records what came of an effect that idem_begin began: done, not_done, or unknown where you cannot tell.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"op":{"type":"string","description":"id that idem_begin gave"},` +
		`"outcome":{"type":"string","enum":["done","not_done","unknown"]},` +
		`"external_id":{"type":"string","description":"id of what was made, in the outside system"},` +
		`"result":{"description":"what was brought back; later asks get it"},` +
		`"text":{"type":"string","description":"why, where it was not done or is not known"}},` +
		`"required":["op","outcome"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`,
	`{"name":"idem_note","title":"Note something for the task","description":"Keeps a remark, an artifact or an external reference for the task; idem_task shows it. The same kind and name again replaces it.",` +
		`"inputSchema":{"type":"object","properties":{` +
		`"kind":{"type":"string","enum":["note","artifact","ref"],"description":"note where it is left out"},` +
		`"name":{"type":"string","maxLength":200},"value":{"type":"string","maxLength":8192}},` +
		`"required":["name","value"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}}`,
}

// Tools implements [ControlTools].
func (c *Control) Tools() []json.RawMessage {
	var out []json.RawMessage
	for _, d := range controlDefinitions {
		out = append(out, json.RawMessage(d))
	}
	return out
}

// strictJSON decodes one value into a struct and refuses fields that it has not.
func strictJSON(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows them")
	}
	return nil
}
