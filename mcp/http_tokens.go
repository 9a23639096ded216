package mcp

import "sync"

// tokens tell apart whose progress a server tells of, where several clients share
// a conversation with it: each may have chosen the same token, so that the server
// gets one of ours. It is safe for concurrent use.
type tokens struct {
	mu   sync.Mutex
	ours map[string]tokenOwner // by our token, raw
}

// tokenOwner is the request that a token stands for.
type tokenOwner struct {
	s         *session
	id, token []byte // of the client's, raw
}

// replace gives a request a token of ours, where it has one. drop ends its use.
func (k *tokens) replace(s *session, e envelope) (line []byte, drop func()) {
	drop = func() {}
	params := e.params.of(e.line)
	meta, err := member(params, "_meta")
	if err != nil || !isObject(meta.of(params)) {
		return e.line, drop
	}
	token, err := member(meta.of(params), "progressToken")
	if err != nil || !token.there() {
		return e.line, drop
	}
	from := e.params.from + meta.from
	at := span{from + token.from, from + token.to}
	ours := quote("p-" + newID())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ours == nil {
		k.ours = map[string]tokenOwner{}
	}
	k.ours[string(ours)] = tokenOwner{s, append([]byte(nil), e.rawID()...), append([]byte(nil), at.of(e.line)...)}
	return splice(e.line, at, ours), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.ours, string(ours))
	}
}

// restore finds whose progress a notification tells of, and gives it the client's
// token back; nil: nobody's who is still there.
func (k *tokens) restore(e envelope) (s *session, id, line []byte) {
	params := e.params.of(e.line)
	token, err := member(params, "progressToken")
	if err != nil || !token.there() {
		return nil, nil, nil
	}
	k.mu.Lock()
	owner := k.ours[string(token.of(params))]
	k.mu.Unlock()
	if owner.s == nil {
		return nil, nil, nil
	}
	return owner.s, owner.id, splice(e.line, span{e.params.from + token.from, e.params.from + token.to}, owner.token)
}
