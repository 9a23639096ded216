package idem

import "time"

// Instant is a moment on the ledger's clock, in nanoseconds since the Unix
// epoch. The ledger's clock never goes back, which the machine's may. The zero
// Instant means "never" or "not yet".
type Instant int64

// InstantOf converts a time; the zero time gives the zero Instant.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time returns the moment in UTC; the zero Instant gives the zero time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// Add returns the moment d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how long after j the moment i is.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }
