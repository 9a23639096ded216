package idem

import (
	"context"
	"time"
)

// Config says what a Guard works with.
type Config struct {
	Store     Store     // required
	Policy    Policy    // required
	Owner     Owner     // this process; required
	Processes Processes // required
	Observer  Observer  // nil: nobody is told

	// ClientTimeout is how long a client waits for an answer; one that comes
	// later counts as not delivered. 0: 55 s.
	ClientTimeout time.Duration
}

// Processes tells what became of other processes.
type Processes interface {
	// Dead reports whether the owner is known to have ended. An owner on another
	// machine never is.
	Dead(o Owner) bool
	// EndGroup ends what is left of a process group that a dead owner led, and
	// reports whether none of it is left.
	EndGroup(ctx context.Context, o Owner, g Group) bool
}

// Guard stands between ask and effect. It is safe for concurrent use.
type Guard struct{}

// New checks the configuration and returns a Guard.
func New(cfg Config) (*Guard, error) { return nil, nil }

// Conn registers a client's connection.
func (g *Guard) Conn() *Conn { return nil }

// Heard tells the guard that the client sent something on the connection: what
// was handed over before has arrived. Call it for every message, before Do.
func (c *Conn) Heard() {}

// Do answers an ask: it replays, waits for, settles or refuses, and calls
// effect at most once per claim. It returns at the latest when ctx ends; the
// attempt goes on without the asker.
func (g *Guard) Do(ctx context.Context, ask Ask, effect Effect) Answer { return Answer{} }

// LostProcess ends every unsettled operation of an upstream's process that kept
// its state to itself (Rules.Process). Call it when the process has ended.
func (g *Guard) LostProcess(ctx context.Context, tenant, server, incarnation string) error {
	return nil
}

// Close waits until every attempt under way has ended and is recorded, or ctx
// ends. No ask may be under way.
func (g *Guard) Close(ctx context.Context) error { return nil }

// Recover runs until ctx ends: it finds claims whose owner died or whose lease
// is over, reconciles what is due, and lets what has expired shrink. servers
// are the upstreams it may touch.
func (g *Guard) Recover(ctx context.Context, tenant string, servers []string) error { return nil }
