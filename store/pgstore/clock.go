package pgstore

import (
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// wall is the server's clock, and moment the ledger's, in SQL.
const (
	wall   = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000`
	moment = `(SELECT greatest(` + wall + ` + ahead, high) FROM {schema}.clock)`
)

// How old a reading may be to tell the time from it, and how far the wall clock
// may run away from the monotonic one before the machine must have slept.
const (
	freshFor = time.Second
	slept    = 50 * time.Millisecond
)

// clock tells the ledger's time between two readings of the server's clock. It
// lags behind by the time a reading took to arrive and is never ahead. Safe for
// concurrent use.
type clock struct {
	now func() time.Time

	mu      sync.Mutex
	reading idem.Instant
	at      time.Time // when it arrived; zero: never
	last    idem.Instant
}

// observe takes in a reading that was asked for at sent and has just arrived.
func (c *clock) observe(reading idem.Instant, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.now()
	est := c.estimate(t)
	// An older reading may have arrived faster and be the better one. It cannot be
	// when it tells a time that the server has not reached.
	if c.at.IsZero() || reading >= est || est > reading.Add(t.Sub(sent)) || t.Sub(c.at) > freshFor {
		c.reading, c.at = reading, t
	}
}

func (c *clock) estimate(t time.Time) idem.Instant { return c.reading.Add(t.Sub(c.at)) }

// tell returns the time, unless the server has to be asked for it.
func (c *clock) tell() (idem.Instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.now()
	if c.at.IsZero() || t.Sub(c.at) > freshFor {
		return 0, false
	}
	if drift := t.Round(0).Sub(c.at.Round(0)) - t.Sub(c.at); drift.Abs() > slept {
		return 0, false
	}
	return c.pass(c.estimate(t)), true
}

// forget makes the next one who asks for the time ask the server.
func (c *clock) forget() {
	c.mu.Lock()
	c.at = time.Time{}
	c.mu.Unlock()
}

// pass makes a reading one that does not go back.
func (c *clock) pass(t idem.Instant) idem.Instant {
	c.last = max(c.last, t)
	return c.last
}

// forward is pass for a reading that comes from the server.
func (c *clock) forward(t idem.Instant) idem.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pass(t)
}
