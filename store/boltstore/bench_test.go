package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// The benchmarks measure both sides of a ratio in turns, in one run on one
// disk, and report the ratio; times alone say more about the machine. The
// targets are in their comments; missing one fails nothing.
//
//	go test -run - -bench . -benchtime 200x ./store/boltstore
//	BOLTSTORE_BENCH_ROWS=1000000 go test -run - -bench Growth -benchtime 100x ./store/boltstore

// benchID is the nth id of a run: spread as hashes are.
func benchID(run uint64, n int) (id idem.ID) {
	binary.BigEndian.PutUint64(id[:], (uint64(n)+run)*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(id[8:], run)
	binary.BigEndian.PutUint32(id[16:], uint32(n))
	return id
}

// benchCall is the claim and the outcome of one guarded call, as a guard stores
// them: the operation and its slot, then both again.
func benchCall(run uint64, n int, now idem.Instant) (claim, outcome idem.Change) {
	id := benchID(run, n)
	op, slot := idem.Ref{Kind: idem.KindOperation, ID: id}, idem.Ref{Kind: idem.KindSlot, ID: id}
	rec := &idem.Record{
		Scope: idem.Scope{Tenant: "default", Tool: "tickets/create_ticket", Operation: "call"}, Source: idem.SourceOccurrence, Key: "1",
		Generation: 1, Hash: idem.Hash{1}, State: idem.StateStarted, Task: fmt.Sprint("task-", n%50), Run: "run", Occurrence: 1, Slot: id,
		Args:     []byte(`{"title":"printer on fire","body":"third floor, next to the kitchen","priority":"high"}`),
		Attempts: []idem.Attempt{{N: 1, Start: now, Sent: now, MayApplied: true, Owner: idem.Owner{Machine: "machine-id-of-32-characters-12345", Boot: "boot", PID: 4711, Start: 99}}},
		Last:     1, Lease: idem.Lease{Fence: 1, Token: idem.Token{1}, End: now.Add(time.Minute)},
		CreatedAt: now, StartedAt: now, UpdatedAt: now,
	}
	rec.Lease.Owner = rec.Attempts[0].Owner
	claim = idem.Change{
		Needs: []idem.Need{{Ref: op}, {Ref: slot}},
		Puts:  []idem.Row{{Ref: op, Operation: rec}, {Ref: slot, Slot: &idem.Slot{N: 1, Open: []idem.ID{id}}}},
	}
	done := rec.Clone()
	done.State, done.Result, done.ResultKind = idem.StateCommitted, bytes.Repeat([]byte(`{"id":"T-1"}`), 15), idem.ResultValue
	done.CommittedAt, done.SettledAt, done.ExpiresAt = now+1, now+1, now.Add(24*time.Hour)
	done.Attempts[0].End, done.Attempts[0].EndBy, done.Attempts[0].Class, done.Attempts[0].MayApplied = now+1, idem.EndByAnswer, idem.ClassSuccess, false
	done.Lease = idem.Lease{Fence: 1}
	outcome = idem.Change{
		Needs: []idem.Need{{Ref: op, Version: 1, Lease: idem.LeaseHeld, Token: rec.Lease.Token}},
		Puts:  []idem.Row{{Ref: op, Operation: done}, {Ref: slot, Slot: &idem.Slot{N: 1}}},
	}
	return claim, outcome
}

func mustChange(b *testing.B, s idem.Store, c idem.Change) {
	if _, err := s.Commit(context.Background(), c); err != nil {
		b.Error(err)
	}
}

// bare is bbolt with the same options and nothing around it.
type bare struct{ db *bbolt.DB }

func openBare(b *testing.B, path string) bare {
	b.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range bucketNames() {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return bare{db}
}

// put stores the rows of a change in one Update: no needs, no indexes.
func (d bare) put(b *testing.B, c idem.Change) {
	err := d.db.Update(func(tx *bbolt.Tx) error {
		for i := range c.Puts {
			body, err := codec.Body(&c.Puts[i])
			if err != nil {
				return err
			}
			ref := c.Puts[i].Ref
			if err := tx.Bucket(rowBuckets[ref.Kind]).Put(ref.ID[:], codec.Seal(ref, 1, body)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

// BenchmarkCall: claim and outcome of one caller against two bare Updates that
// put the same rows; at most 1.25 at the median.
func BenchmarkCall(b *testing.B) {
	dir := b.TempDir()
	s := mustOpen(b, Config{Path: filepath.Join(dir, "ledger.db"), NoSocket: true})
	plain := openBare(b, filepath.Join(dir, "bare.db"))
	prefill(b, s.db, 10_000)
	prefill(b, plain.db, 10_000)
	run := rand.Uint64()
	var ours, theirs []time.Duration
	for n := 0; b.Loop(); n++ {
		claim, outcome := benchCall(run, n, s.clock.Now())
		start := time.Now()
		mustChange(b, s, claim)
		mustChange(b, s, outcome)
		ours = append(ours, time.Since(start))
		start = time.Now()
		plain.put(b, claim)
		plain.put(b, outcome)
		theirs = append(theirs, time.Since(start))
	}
	b.ReportMetric(median(ours)/median(theirs), "x-bare-p50")
	b.ReportMetric(median(ours)/1e3, "µs-p50")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCallers: the throughput of 64 callers against the same work, needs
// and indexes included, with one Update per commit; at least 6. Also against
// bare Updates, which maintain no index.
func BenchmarkCallers(b *testing.B) {
	const callers = 64
	dir := b.TempDir()
	grouped := mustOpen(b, Config{Path: filepath.Join(dir, "ledger.db"), NoSocket: true})
	single := mustOpen(b, Config{Path: filepath.Join(dir, "single.db"), NoSocket: true})
	plain := openBare(b, filepath.Join(dir, "bare.db"))
	for _, db := range []*bbolt.DB{grouped.db, single.db, plain.db} {
		prefill(b, db, 10_000)
	}
	run := rand.Uint64()
	calls := 0
	// rate runs n calls on all callers and returns seconds per call.
	rate := func(n int, commit func(idem.Change)) float64 {
		var next atomic.Int64
		var wg sync.WaitGroup
		start := time.Now()
		for range callers {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					claim, outcome := benchCall(run, calls+i, grouped.clock.Now())
					commit(claim)
					commit(outcome)
				}
			})
		}
		wg.Wait()
		calls += n
		return time.Since(start).Seconds() / float64(n)
	}
	var one sync.Mutex
	var ours, ungrouped, theirs float64
	done, before := 0, txid(b, grouped)
	for b.Loop() {
		ours += rate(8*callers, func(c idem.Change) { mustChange(b, grouped, c) })
		done += 8 * callers
		ungrouped += rate(callers, func(c idem.Change) {
			p, err := core.Prepare(&c)
			if err != nil {
				b.Error(err)
				return
			}
			r := &request{prepared: p}
			one.Lock()
			defer one.Unlock()
			if single.run([]*request{r}); r.err != nil {
				b.Error(r.err)
			}
		})
		theirs += rate(callers, func(c idem.Change) { plain.put(b, c) })
	}
	b.ReportMetric(ungrouped/ours, "x-update")
	b.ReportMetric(theirs/ours, "x-bare")
	b.ReportMetric(float64(b.N)/ours, "calls/s")
	b.ReportMetric(2*float64(done)/float64(txid(b, grouped)-before), "commits/tx")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGrowth: a commit into a big ledger, and into one of which 90 % was
// deleted, against one into a ledger of 10,000 rows; at most 1.3.
func BenchmarkGrowth(b *testing.B) {
	rows := 100_000
	if v := os.Getenv("BOLTSTORE_BENCH_ROWS"); v != "" {
		if _, err := fmt.Sscan(v, &rows); err != nil {
			b.Fatalf("BOLTSTORE_BENCH_ROWS: %v", err)
		}
	}
	dir := b.TempDir()
	open := func(name string, rows, deleted int) *Store {
		path := filepath.Join(dir, name)
		s := mustOpen(b, Config{Path: path, NoSocket: true})
		prefill(b, s.db, rows)
		drop(b, s.db, deleted)
		// Opened again, as after a restart: free pages are found by the scan.
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		s = mustOpen(b, Config{Path: path, NoSocket: true})
		b.Logf("%s: opened in %v", name, time.Since(start).Round(time.Millisecond))
		return s
	}
	stores := []*Store{open("small", 10_000, 0), open("big", rows, 0), open("deleted", rows, rows/10*9)}
	times := make([][]time.Duration, len(stores))
	run := rand.Uint64()
	for n := 0; b.Loop(); n++ {
		for i, s := range stores {
			claim, outcome := benchCall(run, n, s.clock.Now())
			start := time.Now()
			mustChange(b, s, claim)
			mustChange(b, s, outcome)
			times[i] = append(times[i], time.Since(start))
		}
	}
	small := median(times[0])
	b.ReportMetric(median(times[1])/small, "x-big")
	b.ReportMetric(median(times[2])/small, "x-deleted")
	b.ReportMetric(0, "ns/op")
}

// prefill puts settled calls in big transactions, sorted, without syncing each.
func prefill(b *testing.B, db *bbolt.DB, rows int) {
	b.Helper()
	bulk(b, db, rows, func(v view, n int) error {
		claim, outcome := benchCall(1, n, idem.Instant(n+1))
		rec, slot := outcome.Puts[0], claim.Puts[1]
		for _, r := range []idem.Row{rec, slot} {
			body, err := codec.Body(&r)
			if err != nil {
				return err
			}
			if err := v.write(&core.Write{Ref: r.Ref, Sealed: codec.Seal(r.Ref, 1, body), New: r.Operation}); err != nil {
				return err
			}
		}
		return nil
	})
}

// drop deletes the first of what prefill put.
func drop(b *testing.B, db *bbolt.DB, rows int) {
	b.Helper()
	bulk(b, db, rows, func(v view, n int) error {
		claim, outcome := benchCall(1, n, idem.Instant(n+1))
		if err := v.write(&core.Write{Ref: claim.Puts[1].Ref}); err != nil {
			return err
		}
		return v.write(&core.Write{Ref: outcome.Puts[0].Ref, Old: outcome.Puts[0].Operation})
	})
}

func bulk(b *testing.B, db *bbolt.DB, rows int, fn func(v view, n int) error) {
	b.Helper()
	order := make([]int, rows)
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(x, y int) int {
		a, c := benchID(1, x), benchID(1, y)
		return bytes.Compare(a[:], c[:])
	})
	db.NoSync = true
	defer func() { db.NoSync = false }()
	for len(order) > 0 {
		n := min(len(order), 20_000)
		err := db.Update(func(tx *bbolt.Tx) error {
			for _, i := range order[:n] {
				if err := fn(view{tx}, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		order = order[n:]
	}
	if err := db.Sync(); err != nil {
		b.Fatal(err)
	}
}
