package boltstore

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
)

// shopRules are one set of rules for every tool.
type shopRules idem.Rules

func (r shopRules) Rules(string) (idem.Rules, bool) { return idem.Rules(r), true }

func defaultRules() shopRules {
	return shopRules{Operation: "call", Repeat: idem.RepeatOccurrence, Wait: 10 * time.Second, Lease: time.Second,
		Retry: idem.Retry{MaxAttempts: 10, Delay: func(int, time.Duration) time.Duration { return time.Millisecond }},
		// What fails stays failed as long as a test runs.
		FailureTTL: time.Hour, Retention: time.Hour, OccurrenceRetention: time.Hour}
}

// mortals are processes of which one may be known to be dead.
type mortals struct{ dead atomic.Int64 }

func (m *mortals) Dead(o idem.Owner) bool                              { return int64(o.PID) == m.dead.Load() }
func (*mortals) EndGroup(context.Context, idem.Owner, idem.Group) bool { return true }

func newGuard(t testing.TB, s idem.Store, pid int, m *mortals) *idem.Guard {
	t.Helper()
	g, err := idem.New(idem.Config{Store: s, Policy: defaultRules(), Processes: m, Owner: idem.Owner{Machine: "m", PID: pid}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

func buy(step string) idem.Ask {
	return idem.Ask{Tenant: "default", Tool: "shop/order", Args: []byte(`{"item":"tea"}`), Task: "t1", Step: step}
}

var shopBucket = []byte("shop")

// sell is a tool's function: it counts its calls that committed in the file.
func sell(_ context.Context, tx *bbolt.Tx, _ idem.Dispatch) (idem.Outcome, error) {
	b, err := tx.CreateBucketIfNotExists(shopBucket)
	if err != nil {
		return idem.Outcome{}, err
	}
	n := uint64(1)
	if v := b.Get([]byte("sold")); v != nil {
		n += binary.BigEndian.Uint64(v)
	}
	return idem.Outcome{Result: []byte(`"sold"`), Kind: idem.ResultValue}, b.Put([]byte("sold"), binary.BigEndian.AppendUint64(nil, n))
}

// sold reads what sell counted.
func sold(t testing.TB, s *Store) (n uint64) {
	t.Helper()
	err := s.read(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(shopBucket); b != nil && b.Get([]byte("sold")) != nil {
			n = binary.BigEndian.Uint64(b.Get([]byte("sold")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// only returns the one operation in the ledger.
func only(t testing.TB, s idem.Store) *idem.Record {
	t.Helper()
	page, err := s.List(context.Background(), idem.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Records) != 1 {
		t.Fatalf("%d operations", len(page.Records))
	}
	return page.Records[0]
}

// wantShop judges that effect and record are there together: both, or none.
func wantShop(t testing.TB, s *Store, state idem.State) *idem.Record {
	t.Helper()
	r, n := only(t, s), sold(t, s)
	if r.State != state || (state == idem.StateCommitted) != (n == 1) || n > 1 {
		t.Errorf("%s (%s) with %d effects, want %s", r.State, r.Text, n, state)
	}
	return r
}

func wantSold(t testing.TB, a idem.Answer) {
	t.Helper()
	if a.Err != nil || string(a.Result) != `"sold"` {
		t.Errorf("answer %s, %v", a.Result, a.Err)
	}
}
