package mcp

import "bytes"

const metaSubscription = "io.modelcontextprotocol/subscriptionId"

// subscribed is a notification of a stateless server under the client's id of the
// subscription that it belongs to. about is that id; nil: it belongs to none. ok
// is false where the client has ended the subscription.
func (c *peer) subscribed(e envelope) (line, about []byte, ok bool) {
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
	params, err = setIn(params, "_meta", field{metaSubscription, p.id})
	if err != nil {
		return nil, nil, false
	}
	return splice(e.line, e.params, params), p.id, true
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
