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
	now func() (t, wall time.Time) // t goes on steadily, wall as the machine's clock is set

	mu      sync.Mutex
	ahead   time.Duration // of the table clock, as it was read last
	high    idem.Instant
	reading idem.Instant
	at      time.Time // when it arrived; zero: never
	wall    time.Time // at the same moment
	still   bool      // two readings are the same: the server's clock is behind high
	last    idem.Instant
}

// machine is the machine's clock.
func machine() (t, wall time.Time) {
	t = time.Now()
	return t, t.Round(0)
}

// row takes in what the table clock holds. It is read on every new connection,
// so also after another server has taken over.
func (c *clock) row(ahead time.Duration, high idem.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ahead != c.ahead {
		c.at = time.Time{} // an import has set the clock
	}
	c.ahead, c.high = ahead, max(c.high, high)
}

// server takes in the server's own time, asked for at sent, and returns the
// ledger's.
func (c *clock) server(t time.Time, sent time.Time) idem.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	reading := max(idem.InstantOf(t).Add(c.ahead), c.high)
	c.observe(reading, sent)
	return c.pass(reading)
}

// ledger takes in the ledger's time, asked for at sent, and returns it.
func (c *clock) ledger(reading idem.Instant, sent time.Time) idem.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(reading, sent)
	return c.pass(reading)
}

func (c *clock) observe(reading idem.Instant, sent time.Time) {
	t, wall := c.now()
	est := c.estimate(t)
	c.still = reading == c.reading && t.Sub(c.at) > time.Millisecond
	// An older reading may have arrived faster and be the better one. It cannot be
	// when it tells a time that the server has not reached.
	if c.at.IsZero() || reading >= est || est > reading.Add(t.Sub(sent)) || t.Sub(c.at) > freshFor {
		c.reading, c.at, c.wall = reading, t, wall
	}
}

// stands reports whether the ledger's clock stands still.
func (c *clock) stands() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.still
}

func (c *clock) estimate(t time.Time) idem.Instant { return c.reading.Add(t.Sub(c.at)) }

// tell returns the time, unless the server has to be asked for it.
func (c *clock) tell() (idem.Instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, wall := c.now()
	if c.at.IsZero() || t.Sub(c.at) > freshFor {
		return 0, false
	}
	if drift := wall.Sub(c.wall) - t.Sub(c.at); drift.Abs() > slept {
		return 0, false
	}
	return c.pass(c.estimate(t)), true
}

// pass makes a reading one that does not go back.
func (c *clock) pass(t idem.Instant) idem.Instant {
	c.last = max(c.last, t)
	return c.last
}
