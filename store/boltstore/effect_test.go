package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
)

func TestEffect(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	g := newGuard(t, s, 1, &mortals{})
	before := txid(t, s)
	a := g.Do(context.Background(), buy("s1"), s.Effect(sell))
	wantSold(t, a)
	if n := txid(t, s) - before; n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
	b := g.Do(context.Background(), buy("s1"), s.Effect(sell))
	wantSold(t, b)
	if a.Replayed || !b.Replayed {
		t.Errorf("replays: %v, %v", a.Replayed, b.Replayed)
	}
	wantShop(t, s, idem.StateCommitted)
	if n := s.leases.Len(); n != 0 {
		t.Errorf("%d leases are remembered", n)
	}
}

// TestEffectWakes: who waits for the operation hears of its outcome.
func TestEffectWakes(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	g1, g2 := newGuard(t, s, 1, &mortals{}), newGuard(t, s, 2, &mortals{})
	begun, end := make(chan struct{}), make(chan struct{})
	go g1.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		close(begun)
		<-end
		return sell(ctx, tx, d)
	}))
	<-begun
	answer := make(chan idem.Answer)
	go func() { answer <- g2.Do(context.Background(), buy("s1"), s.Effect(sell)) }()
	time.Sleep(50 * time.Millisecond)
	close(end)
	start := time.Now()
	wantSold(t, <-answer)
	if d := time.Since(start); d > 900*time.Millisecond { // it looks by itself each second
		t.Errorf("woken after %v", d)
	}
	wantShop(t, s, idem.StateCommitted)
}

// TestEffectKeepsItsLease: heartbeats and looks pass beside the open transaction.
func TestEffectKeepsItsLease(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	g := newGuard(t, s, 1, &mortals{})
	wantSold(t, g.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		ref := idem.Ref{Kind: idem.KindOperation, ID: d.Record.Op}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			snap, err := s.Load(ctx, ref)
			if err != nil {
				return idem.Outcome{}, err
			}
			if snap.Operation(ref.ID).Lease.End > d.Record.Lease.End {
				return sell(ctx, tx, d)
			}
			if time.Now().After(end) {
				return idem.Outcome{}, errors.New("the lease is not extended")
			}
		}
	})))
	wantShop(t, s, idem.StateCommitted)
}

// misdeed is something that a function does beside its work.
type misdeed func(ctx context.Context, s *Store, tx *bbolt.Tx) error

// TestEffectRollsBack: nothing stays of a function that fails, or does what it
// must not, and the ledger works on.
func TestEffectRollsBack(t *testing.T) {
	bucket := func(name string, do func(*bbolt.Bucket) error) misdeed {
		return func(_ context.Context, _ *Store, tx *bbolt.Tx) error { return do(tx.Bucket([]byte(name))) }
	}
	for name, tc := range map[string]struct {
		do   misdeed
		want string // in the record's text
	}{
		"an error": {func(context.Context, *Store, *bbolt.Tx) error { return errors.New("no tea left") }, "no tea left"},
		"a row of the ledger's": {bucket("command", func(b *bbolt.Bucket) error {
			return b.Put([]byte("k"), []byte("v"))
		}), `the bucket "command"`},
		"a row deleted": {bucket("operation", func(b *bbolt.Bucket) error {
			c := b.Cursor()
			_, _ = c.First()
			return c.Delete()
		}), `the bucket "operation"`},
		"a value of the ledger's": {bucket("ledger", func(b *bbolt.Bucket) error {
			return b.Delete([]byte("id"))
		}), `the bucket "ledger"`},
		"a sequence": {bucket("by-task", func(b *bbolt.Bucket) error {
			_, err := b.NextSequence()
			return err
		}), `the bucket "by-task"`},
		"a bucket inside": {bucket("key", func(b *bbolt.Bucket) error {
			_, err := b.CreateBucket([]byte("b"))
			return err
		}), `the bucket "key"`},
		"a bucket deleted": {func(_ context.Context, _ *Store, tx *bbolt.Tx) error {
			return tx.DeleteBucket([]byte("alias"))
		}, `the bucket "alias"`},
		"a bucket made anew": {func(_ context.Context, _ *Store, tx *bbolt.Tx) error {
			err := tx.DeleteBucket([]byte("alias"))
			_, cerr := tx.CreateBucket([]byte("alias"))
			return errors.Join(err, cerr)
		}, `the bucket "alias"`},
		"the transaction ended": {func(_ context.Context, _ *Store, tx *bbolt.Tx) error {
			return tx.Rollback()
		}, "rolled back the ledger's transaction"},
		"a commit inside": {func(ctx context.Context, s *Store, _ *bbolt.Tx) error {
			_, err := s.Commit(ctx, idem.Change{Puts: []idem.Row{testRow(1)}})
			return err
		}, "while its own transaction is open"},
		"an operation inside": {func(ctx context.Context, s *Store, _ *bbolt.Tx) error {
			return newGuard(t, s, 2, &mortals{}).Do(ctx, buy("s2"), s.Effect(sell)).Err
		}, "while its own transaction is open"},
	} {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			s := mustOpen(t, Config{Path: path, NoSocket: true})
			g := newGuard(t, s, 1, &mortals{})
			a := g.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
				out, err := sell(ctx, tx, d)
				return out, errors.Join(err, tc.do(ctx, s, tx))
			}))
			if a.Err == nil || a.Err.Code != idem.CodeFailed {
				t.Errorf("answer %s, %v", a.Result, a.Err)
			}
			if r := wantShop(t, s, idem.StateFailedFinal); !strings.Contains(r.Text, tc.want) || r.Absence != idem.AbsenceProven {
				t.Errorf("text %q, absence %s", r.Text, r.Absence)
			}
			mustPut(t, s, testRow(1))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := VerifyRows(path); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEffectCommittedByItsFunction: it must not, but what it committed is there,
// and so it is recorded.
func TestEffectCommittedByItsFunction(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	g := newGuard(t, s, 1, &mortals{})
	wantSold(t, g.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		out, err := sell(ctx, tx, d)
		return out, errors.Join(err, tx.Commit())
	})))
	wantShop(t, s, idem.StateCommitted)
}

func TestEffectPanics(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	g := newGuard(t, s, 1, &mortals{})
	calls := 0
	wantSold(t, g.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		out, err := sell(ctx, tx, d)
		if calls++; calls == 1 {
			panic("no tea left")
		}
		return out, err
	})))
	r := wantShop(t, s, idem.StateCommitted)
	if first := r.Attempts[0]; !strings.Contains(first.Text, "no tea left") || !strings.Contains(first.Text, "effect_test.go") || first.Closed != idem.ProofFence {
		t.Errorf("first attempt %+v", first)
	}
}

// TestEffectExits: a function may end its goroutine, as t.Fatal does. The ledger
// is not kept waiting for it.
func TestEffectExits(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	m := &mortals{}
	ctx, cancel := context.WithCancel(context.Background())
	newGuard(t, s, 1, m).Do(ctx, buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		defer cancel()
		_, _ = sell(ctx, tx, d)
		runtime.Goexit()
		return idem.Outcome{}, nil
	}))
	mustPut(t, s, testRow(1))
	if n := sold(t, s); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// TestEffectKeepsBuckets: a tool's buckets, nested ones too, are no damage.
func TestEffectKeepsBuckets(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path, NoSocket: true})
	fill := func(_ context.Context, tx *bbolt.Tx, _ idem.Dispatch) (idem.Outcome, error) {
		b, err := tx.CreateBucket(shopBucket)
		for _, name := range []string{"a", "operation", "c"} {
			if err != nil {
				break
			}
			if b, err = b.CreateBucket([]byte(name)); err == nil {
				err = b.Put([]byte("empty"), nil)
			}
			for i := range 500 {
				err = errors.Join(err, b.Put(fmt.Appendf(nil, "key %d", i), make([]byte, 50)))
			}
		}
		return idem.Outcome{}, err
	}
	if a := newGuard(t, s, 1, &mortals{}).Do(context.Background(), buy("s1"), s.Effect(fill)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := VerifyRows(path); err != nil || rep.Rows < 2 {
		t.Fatalf("%d rows, %v", rep.Rows, err)
	}
	if _, _, err := Compact(path); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, Config{Path: path, NoSocket: true})
	err := s.read(func(tx *bbolt.Tx) error {
		b := tx.Bucket(shopBucket).Bucket([]byte("a")).Bucket([]byte("operation")).Bucket([]byte("c"))
		if n := b.Stats().KeyN; n != 501 {
			t.Errorf("%d keys", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEffectNeedsTheFile: only the process that holds the file makes effects in
// it.
func TestEffectNeedsTheFile(t *testing.T) {
	path := tempPath(t)
	join := func() *Shared {
		s, err := Join(Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	first, second := join(), join()
	m := &mortals{}
	g := newGuard(t, second, 2, m)
	a := g.Do(context.Background(), buy("s1"), second.Effect(sell))
	if a.Err == nil || a.Err.Code != idem.CodeFailed || !errors.Is(a.Err, ErrLocked) || !strings.Contains(a.Err.Error(), path) {
		t.Errorf("answer %s, %v", a.Result, a.Err)
	}
	if page, err := second.List(context.Background(), idem.Query{}); err != nil || len(page.Records) != 0 {
		t.Errorf("%d records, %v", len(page.Records), err)
	}
	wantSold(t, newGuard(t, first, 1, m).Do(context.Background(), buy("s1"), first.Effect(sell)))
	wantSold(t, g.Do(context.Background(), buy("s1"), second.Effect(sell))) // replays
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wantSold(t, g.Do(context.Background(), buy("s2"), second.Effect(sell)))
	st, err := second.holder()
	if err != nil {
		t.Fatal(err)
	}
	if n := sold(t, st); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// TestEffectOfAMovedFile: a file that was taken away while the function ran gets
// nothing.
func TestEffectOfAMovedFile(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path, NoSocket: true})
	away := filepath.Join(t.TempDir(), "away.db")
	g := newGuard(t, s, 1, &mortals{})
	calls := 0
	wantSold(t, g.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		if calls++; calls == 1 {
			if err := os.Rename(path, away); err != nil {
				t.Error(err)
			}
			time.AfterFunc(100*time.Millisecond, func() { _ = os.Rename(away, path) })
		}
		return sell(ctx, tx, d)
	})))
	if r := wantShop(t, s, idem.StateCommitted); len(r.Attempts) != 2 || !strings.Contains(r.Attempts[0].Text, ErrGone.Error()) {
		t.Errorf("attempts %+v", r.Attempts)
	}
}
