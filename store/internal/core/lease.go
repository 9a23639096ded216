package core

import (
	"sync"

	idem "github.com/mcp-idem/mcp-idem"
)

// Leases keeps the lease ends that holders have extended, in memory: a
// heartbeat costs no sync. They are lost with the process, which makes a lease
// look over too early and never too late: an end authorises no dispatch. Safe
// for concurrent use.
type Leases struct {
	mu sync.RWMutex
	m  map[idem.ID]mark
}

type mark struct {
	token idem.Token
	end   idem.Instant
}

// NewLeases returns an empty set.
func NewLeases() *Leases { return &Leases{m: map[idem.ID]mark{}} }

// Extend notes that the claim with this token holds the operation's lease until
// end, if it is later than what is known.
func (l *Leases) Extend(id idem.ID, token idem.Token, end idem.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m, ok := l.m[id]; ok && m.token == token {
		end = max(end, m.end)
	}
	l.m[id] = mark{token, end}
}

// Overlay gives the record the lease end that its own claim extended it to.
func (l *Leases) Overlay(id idem.ID, r *idem.Record) {
	l.mu.RLock()
	m, ok := l.m[id]
	l.mu.RUnlock()
	if ok && m.of(r) {
		r.Lease.End = max(r.Lease.End, m.end)
	}
}

// Settle forgets what was noted if the record, nil for a dropped one, is no
// longer under the same claim.
func (l *Leases) Settle(id idem.ID, r *idem.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m, ok := l.m[id]; ok && (r == nil || !m.of(r)) {
		delete(l.m, id)
	}
}

// Forget drops what is noted of this claim.
func (l *Leases) Forget(id idem.ID, token idem.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m, ok := l.m[id]; ok && m.token == token {
		delete(l.m, id)
	}
}

// Len is the number of operations something is noted of.
func (l *Leases) Len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.m)
}

func (m mark) of(r *idem.Record) bool { return Claimed(r, m.token) }

// Claimed reports whether the record is under the claim with this token.
func Claimed(r *idem.Record, token idem.Token) bool {
	return r.State == idem.StateStarted && r.Lease.End != 0 && r.Lease.Token == token
}
