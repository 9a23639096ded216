package core

import (
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// Clock is the ledger's clock. It starts at the later of the machine's wall
// clock and the highest moment the ledger has stored, and from there follows
// the monotonic clock: a wall clock that is set back or forward while the
// ledger is open moves nothing. Safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    func() time.Time
	opened time.Time
	base   idem.Instant
	last   idem.Instant
}

// NewClock starts a clock; now is nil for the machine's. A now whose times carry
// no monotonic reading (tests) may go back: then the clock stands still.
func NewClock(now func() time.Time, stored idem.Instant) *Clock {
	if now == nil {
		now = time.Now
	}
	t := now()
	base := max(idem.InstantOf(t), stored)
	return &Clock{now: now, opened: t, base: base, last: base}
}

// Now reads the clock. It never goes back.
func (c *Clock) Now() idem.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *Clock) read() idem.Instant {
	c.last = max(c.last, c.base.Add(c.now().Sub(c.opened)))
	return c.last
}

// Raise sets the clock forward to t, from where it goes on.
func (c *Clock) Raise(t idem.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.read(); t > now {
		c.base, c.last = c.base.Add(t.Sub(now)), t
	}
}
