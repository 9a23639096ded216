package bench

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// What a call takes and what it brings, the same on every side: 300 bytes of
// arguments and 400 bytes of result.
var (
	callArgs   = pad(`{"order_id":"order-123","title":"Broken lamp in the hall","amount":12.50,"tags":["a","b"],"note":"`, `"}`, 300)
	callResult = pad(`{"content":[{"type":"text","text":"created ticket T-1"}],"structuredContent":{"id":"T-1","note":"`, `"}}`, 400)
)

func pad(head, tail string, size int) []byte {
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

// keys makes keys that nobody had before.
type keys struct {
	prefix string
	n      atomic.Int64
}

func newKeys(prefix string) *keys { return &keys{prefix: prefix} }

func (k *keys) next() string { return fmt.Sprintf("%s-%09d", k.prefix, k.n.Add(1)) }

// guarded is a guard on a store, and the calls made through it.
type guarded struct{ guard *idem.Guard }

func newGuarded(b *testing.B, st idem.Store) *guarded {
	b.Helper()
	g, err := idem.New(idem.Config{Store: st, Policy: policy{}, Owner: idem.Owner{Machine: "bench", Boot: "1", PID: 1, Start: 1}, Processes: alive{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return &guarded{g}
}

// call makes one guarded call, or a replay where the key was used before.
func (g *guarded) call(key string, replay bool) error {
	ask := idem.Ask{Tenant: "default", Tool: "tickets/create", Args: callArgs, HostKey: key}
	ans := g.guard.Do(context.Background(), ask, idem.Effect{Run: effect})
	switch {
	case ans.Err != nil:
		return ans.Err
	case ans.Replayed != replay || len(ans.Result) != len(callResult):
		return fmt.Errorf("key %s: replayed %v with %d bytes", key, ans.Replayed, len(ans.Result))
	}
	return nil
}

func (g *guarded) fresh(k *keys) side {
	return side{"ours", func() error { return g.call(k.next(), false) }}
}

func effect(context.Context, idem.Dispatch) idem.Outcome {
	return idem.Outcome{Class: idem.ClassSuccess, Result: callResult, Kind: idem.ResultValue, ExternalID: "T-1"}
}

// policy gives every tool the defaults.
type policy struct{}

func (policy) Rules(string) (idem.Rules, bool) {
	return idem.Rules{
		Operation: "call", Repeat: idem.RepeatOccurrence, Wait: 20 * time.Second, Lease: 30 * time.Second,
		Retry: idem.Retry{MaxAttempts: 3, MaxElapsed: 2 * time.Minute, Delay: func(_ int, floor time.Duration) time.Duration {
			return max(floor, 200*time.Millisecond)
		}},
		FailureTTL: 10 * time.Minute, Retention: 720 * time.Hour, OccurrenceRetention: 48 * time.Hour,
	}, true
}

// alive knows of no dead process.
type alive struct{}

func (alive) Dead(idem.Owner) bool { return false }

func (alive) EndGroup(context.Context, idem.Owner, idem.Group) bool { return false }
