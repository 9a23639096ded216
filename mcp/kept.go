package mcp

import "bytes"

// keep remembers what a request of the client sets in its server for good, to be
// said again to the next process of it.
func (u *Upstream) keep(e envelope) {
	var what string
	switch e.method {
	case "logging/setLevel":
		what = "level"
	case "resources/subscribe", "resources/unsubscribe":
		what = "uri " + string(find(e.params.of(e.line), "uri"))
	default:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.method == "resources/unsubscribe" {
		delete(u.kept, what)
		return
	}
	if u.kept == nil {
		u.kept = map[string]envelope{}
	}
	e.line = bytes.Clone(e.line)
	u.kept[what] = e
}

// restateLocked says to a process what the client has set in an earlier one. The
// client has its answers already.
func (u *Upstream) restateLocked(c *peer) {
	if c.informed {
		return
	}
	c.informed = true
	var all []envelope
	for _, e := range u.kept {
		all = append(all, e)
	}
	go func() {
		for _, e := range all {
			u.passTo(c, e, &pending{done: func(r reply) {
				if r.err == nil && r.env.errObj.there() {
					u.log.Warn().Str("method", e.method).Bytes("answer", r.env.errObj.of(r.env.line)).Msg("the restarted upstream refuses what its client had set")
				}
			}})
		}
	}()
}
