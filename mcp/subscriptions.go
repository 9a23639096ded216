package mcp

import (
	"bytes"
	"encoding/json"
	"slices"
)

const metaSubscription = "io.modelcontextprotocol/subscriptionId"

// subscribed is a notification of a stateless server under the client's id of the
// subscription that it belongs to, which is of; nil: it belongs to none. ok
// is false where the client has ended the subscription.
func (c *peer) subscribed(e envelope) (line []byte, of *pending, ok bool) {
	if !bytes.Contains(e.params.of(e.line), []byte(metaSubscription)) {
		return e.line, nil, true
	}
	params := e.params.of(e.line)
	raw := find(find(params, "_meta"), metaSubscription)
	key, err := keyOf(raw)
	if raw == nil || err != nil {
		return e.line, nil, true
	}
	c.mu.Lock()
	p := c.pending[key]
	c.mu.Unlock()
	if p == nil || p.id == nil {
		return nil, nil, false
	}
	line, err = marked(e, p.id)
	return line, p, err == nil
}

// listeners are the subscriptions of a conversation without a session whose
// clients want a notification. A server over stdio may leave out which one it is
// for: to it there is one client.
func (c *peer) listeners(e envelope) (all []*pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if p.from != nil && p.id != nil && wantedBy(p.wants, e) {
			all = append(all, p)
		}
	}
	return all
}

// wantedBy reports whether a subscription (params.notifications of it) is to a
// notification.
func wantedBy(filter []byte, e envelope) bool {
	if filter == nil {
		return false
	}
	switch e.method {
	case "notifications/tools/list_changed":
		return string(find(filter, "toolsListChanged")) == "true"
	case "notifications/prompts/list_changed":
		return string(find(filter, "promptsListChanged")) == "true"
	case "notifications/resources/list_changed":
		return string(find(filter, "resourcesListChanged")) == "true"
	case "notifications/resources/updated":
		var uris []string
		uri, err := unquote(find(e.params.of(e.line), "uri"))
		return err == nil && json.Unmarshal(find(filter, "resourceSubscriptions"), &uris) == nil && slices.Contains(uris, uri)
	}
	return false
}

// marked is a notification that says which subscription it is for.
func marked(e envelope, id []byte) ([]byte, error) {
	params, err := setIn(e.params.of(e.line), "_meta", field{metaSubscription, id})
	if err != nil {
		return nil, err
	}
	if !e.params.there() {
		return setMembers(e.line, field{"params", params})
	}
	return splice(e.line, e.params, params), nil
}

// unsubscribed puts the client's id of a subscription into the answer that ends
// it.
func unsubscribed(id []byte) func(envelope) envelope {
	return func(e envelope) envelope {
		result := e.result.of(e.line)
		raw := find(find(result, "_meta"), metaSubscription)
		if raw == nil || !bytes.Equal(bytes.Trim(raw, `"`), bytes.Trim(e.rawID(), `"`)) {
			return e
		}
		result, err := setIn(result, "_meta", field{metaSubscription, id})
		if err != nil {
			return e
		}
		return answerLine(result)
	}
}
