package policy

import (
	"math/rand/v2"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// MaxFloor is the longest wait that an upstream may ask for; more is taken for
// garbage.
const MaxFloor = 24 * time.Hour

// Retry is a schedule of exponential back-off with full jitter: before attempt
// n+1 the wait is random between 0 and Initial doubled n-1 times, at most Max.
// Source of the rule: "Exponential Backoff And Jitter", AWS Architecture Blog.
type Retry struct {
	MaxAttempts int           // the first one included
	Initial     time.Duration // upper end of the first wait
	Max         time.Duration // upper end of any wait
	MaxElapsed  time.Duration // from the first attempt; 0: no limit
}

// DefaultRetry is what holds where a policy is silent.
func DefaultRetry() Retry {
	return Retry{MaxAttempts: 3, Initial: 200 * time.Millisecond, Max: 10 * time.Second, MaxElapsed: 2 * time.Minute}
}

// Schedule returns the schedule for the guard. random returns a number in
// [0,n) and must be safe for concurrent use; nil: the runtime's.
func (r Retry) Schedule(random func(n int64) int64) idem.Retry {
	if random == nil {
		random = rand.Int64N
	}
	return idem.Retry{MaxAttempts: r.MaxAttempts, MaxElapsed: r.MaxElapsed, Delay: func(n int, floor time.Duration) time.Duration {
		wait := time.Duration(random(int64(r.ceiling(n)) + 1))
		switch {
		case floor == 0: // nothing was asked for
		case floor < 0 || floor > MaxFloor: // nonsense was
			wait = max(wait, r.Initial)
		default: // spread out behind the floor, or all who were told it come at once
			wait += floor
		}
		return wait
	}}
}

func (r Retry) ceiling(n int) time.Duration {
	c := min(r.Initial, r.Max)
	for range n - 1 {
		if c > r.Max/2 {
			return max(r.Max, 0)
		}
		c *= 2
	}
	return max(c, 0)
}
