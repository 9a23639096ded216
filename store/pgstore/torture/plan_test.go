package torture

import (
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	hosts = 3
	// workTime is how long hosts ask and faults happen.
	workTime = 4 * time.Second
	// bound is the longest that the shop works on a request it has got, settle how
	// long an attempt's end must lie back before "not found" is believed. Between
	// them is what a busy machine may lose. No pause of a host matters for it: a
	// paused owner's attempt has not ended.
	bound  = 400 * time.Millisecond
	settle = 2 * time.Second
	giveUp = 4 * time.Second
)

// plan is what a seed decides about a run.
type plan struct {
	seed      uint64
	atomic    bool          // effects commit with their outcomes; the shop has no part in it
	reconcile bool          // the shop can be asked
	machines  int           // 1: every host can tell that another's process is dead
	lease     time.Duration // of a claim
	patience  [hosts]time.Duration
	skew      [hosts]time.Duration // of the host's wall clock
	latency   [hosts]time.Duration // between host and server
}

func newPlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := plan{seed: seed, reconcile: rng.IntN(4) > 0, machines: hosts, lease: between(rng, 300*time.Millisecond, 800*time.Millisecond)}
	if rng.IntN(2) == 0 {
		p.machines = 1
	}
	for i := range hosts {
		p.patience[i] = between(rng, 50*time.Millisecond, 2*time.Second)
		p.skew[i] = time.Duration(rng.IntN(3)-1) * time.Hour
		if rng.IntN(3) == 0 {
			p.latency[i] = between(rng, time.Millisecond, 20*time.Millisecond)
		}
	}
	p.atomic = rng.IntN(5) == 0
	return p
}

func (p plan) String() string {
	return fmt.Sprintf("seed %d: atomic %v, reconcile %v, %d machines, lease %v, patience %v, skew %v, latency %v",
		p.seed, p.atomic, p.reconcile, p.machines, p.lease, p.patience, p.skew, p.latency)
}

func between(rng *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(rng.Int64N(int64(b-a)))
}
