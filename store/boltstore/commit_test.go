package boltstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
)

// stall holds bbolt's write lock, so that commits queue, until it is called.
func stall(t *testing.T, s *Store) (release func()) {
	t.Helper()
	tx, err := s.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// queued waits until n requests wait behind the leader.
func (q *queue) queued(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		have := len(q.waiting)
		q.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d requests wait, want %d", have, n)
		}
	}
}

func txid(t testing.TB, s *Store) (id int) {
	t.Helper()
	if err := s.read(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestGroup: what came while a commit ran shares the next one, and each Change
// is judged on what those before it left.
func TestGroup(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	before := txid(t, s)
	release := stall(t, s)
	errs := make([]error, 31)
	var wg sync.WaitGroup
	commit := func(n int, c idem.Change) {
		wg.Go(func() { _, errs[n] = s.Commit(context.Background(), c) })
	}
	commit(0, idem.Change{Puts: []idem.Row{testRow(0)}})
	for n := 1; n <= 30; n++ {
		// All want the same version of one row; each puts another one too.
		for busy := false; !busy; time.Sleep(time.Millisecond) {
			s.queue.mu.Lock()
			busy = s.queue.busy
			s.queue.mu.Unlock()
		}
		commit(n, idem.Change{
			Needs: []idem.Need{{Ref: testRow(500).Ref}},
			Puts:  []idem.Row{testRow(500), testRow(n)},
		})
	}
	s.queue.queued(t, 30)
	release()
	wg.Wait()
	if got := txid(t, s) - before; got != 2 {
		t.Errorf("%d transactions, want 2", got)
	}
	won := 0
	for n, err := range errs[1:] {
		_, conflict := errors.AsType[*idem.Conflict](err)
		if err != nil && !conflict {
			t.Fatal(err)
		}
		snap, lerr := s.Load(context.Background(), testRow(n+1).Ref)
		if lerr != nil {
			t.Fatal(lerr)
		}
		if there := snap.Operation(testID(n+1)) != nil; there != (err == nil) {
			t.Errorf("change %d: error %v, its row is there: %v", n+1, err, there)
		}
		if err == nil {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d changes won, want 1", won)
	}
}

// TestContextEndsInTheQueue: what no transaction has yet is taken back.
func TestContextEndsInTheQueue(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	release := stall(t, s)
	var wg sync.WaitGroup
	wg.Go(func() { mustPut(t, s, testRow(0)) })
	for busy := false; !busy; time.Sleep(time.Millisecond) {
		s.queue.mu.Lock()
		busy = s.queue.busy
		s.queue.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, idem.Change{Puts: []idem.Row{testRow(1)}})
		left <- err
	}()
	s.queue.queued(t, 1)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) || errors.Is(err, idem.ErrCommitUnknown) {
		t.Errorf("error %v", err)
	}
	release()
	wg.Wait()
	mustPut(t, s, testRow(2))
	snap, err := s.Load(context.Background(), testRow(0).Ref, testRow(1).Ref, testRow(2).Ref)
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Rows) != 2 || snap.Operation(testID(1)) != nil {
		t.Errorf("%d rows", len(snap.Rows))
	}
}

// TestNothingToStore: heartbeats, conflicts and marks that change nothing cost
// no transaction.
func TestNothingToStore(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	row := testRow(1)
	row.Operation.State = idem.StateStarted
	row.Operation.Lease = idem.Lease{Token: idem.Token{1}, End: 5}
	alias := idem.Mark{Ref: idem.Ref{Kind: idem.KindAlias, ID: testID(1)}, Alias: &idem.Alias{Operation: testID(1)}}
	ctx := context.Background()
	if _, err := s.Commit(ctx, idem.Change{Puts: []idem.Row{row}, Marks: []idem.Mark{alias}}); err != nil {
		t.Fatal(err)
	}
	before := txid(t, s)
	for _, c := range []idem.Change{
		{Marks: []idem.Mark{{Ref: row.Ref, LeaseEnd: 9, Token: idem.Token{1}}}},
		{Marks: []idem.Mark{alias}},
		{Drops: []idem.Ref{testRow(7).Ref}},
		{Needs: []idem.Need{{Ref: row.Ref, Version: 1}}},
	} {
		if _, err := s.Commit(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Commit(ctx, idem.Change{Needs: []idem.Need{{Ref: row.Ref}}, Puts: []idem.Row{row}}); err == nil {
		t.Fatal("no conflict")
	}
	if after := txid(t, s); after != before {
		t.Errorf("%d transactions for nothing", after-before)
	}
}

// TestEndedClaimsAreForgotten: marks do not pile up in memory.
func TestEndedClaimsAreForgotten(t *testing.T) {
	s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
	ctx := context.Background()
	for n := range 20 {
		row := testRow(n)
		row.Operation.State = idem.StateStarted
		row.Operation.Lease = idem.Lease{Token: idem.Token{1}, End: 5}
		mustPut(t, s, row)
		beat := idem.Change{Marks: []idem.Mark{{Ref: row.Ref, LeaseEnd: 9, Token: idem.Token{1}}}}
		if _, err := s.Commit(ctx, beat); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, testRow(n))
		if _, err := s.Commit(ctx, beat); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.leases.Len(); left != 0 {
		t.Errorf("%d marks are left", left)
	}
}
