package boltstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	idem "github.com/mcp-idem/mcp-idem"
)

// TestEffectTakenOver: its owner is declared dead, and lives.
func TestEffectTakenOver(t *testing.T) {
	t.Run("before its transaction began", func(t *testing.T) {
		s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
		m := &mortals{}
		g1, g2 := newGuard(t, s, 1, m), newGuard(t, s, 2, m)
		claimed, begin, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		late := s.Effect(sell)
		atomic := late.Atomic
		late.Atomic = func(ctx context.Context, d idem.Dispatch, decide idem.Decide) error {
			close(claimed)
			<-begin
			err := atomic(ctx, d, decide)
			over <- err
			return err
		}
		answer := make(chan idem.Answer, 1)
		go func() { answer <- g1.Do(context.Background(), buy("s1"), late) }()
		<-claimed
		m.dead.Store(1)
		wantSold(t, g2.Do(context.Background(), buy("s1"), s.Effect(sell)))
		close(begin)
		if err := <-over; !errors.As(err, new(*idem.Conflict)) {
			t.Errorf("error %v, want a conflict", err)
		}
		wantSold(t, <-answer)
		r := wantShop(t, s, idem.StateCommitted)
		if len(r.Attempts) != 2 || r.Attempts[0].Closed != idem.ProofFence || r.CommittedBy != 2 {
			t.Errorf("committed by %d of %+v", r.CommittedBy, r.Attempts)
		}
	})
	t.Run("while it is open", func(t *testing.T) {
		s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
		m := &mortals{}
		g1, g2 := newGuard(t, s, 1, m), newGuard(t, s, 2, m)
		begun, end := make(chan struct{}), make(chan struct{})
		go g1.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
			close(begun)
			<-end
			return sell(ctx, tx, d)
		}))
		<-begun
		m.dead.Store(1)
		answer := make(chan idem.Answer, 1)
		go func() { answer <- g2.Do(context.Background(), buy("s1"), s.Effect(sell)) }()
		time.Sleep(50 * time.Millisecond) // the takeover waits for the file
		close(end)
		wantSold(t, <-answer)
		if r := wantShop(t, s, idem.StateCommitted); len(r.Attempts) != 1 {
			t.Errorf("attempts %+v", r.Attempts)
		}
	})
}

// TestEffectOnAFullDisk: what there is no space for did not happen.
func TestEffectOnAFullDisk(t *testing.T) {
	dir := mountTmpfs(t, "size=2m")
	s := mustOpen(t, Config{Path: filepath.Join(dir, "ledger.db"), NoSocket: true})
	ballast := filepath.Join(dir, "ballast")
	calls := 0
	wantSold(t, newGuard(t, s, 1, &mortals{}).Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
		if calls++; calls > 1 {
			_ = os.Remove(ballast)
		} else if err := os.WriteFile(ballast, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the disk is not full: %v", err)
		}
		out, err := sell(ctx, tx, d)
		return out, errors.Join(err, tx.Bucket(shopBucket).Put([]byte("large"), make([]byte, 512<<10)))
	})))
	if r := wantShop(t, s, idem.StateCommitted); len(r.Attempts) != 2 || !strings.Contains(r.Attempts[0].Text, ErrFull.Error()) {
		t.Errorf("attempts %+v", r.Attempts)
	}
}

// TestEffectInABrokenLedger: the file fails in a way that leaves open what is in
// it. The answer says so, and the file tells when it is opened again.
func TestEffectInABrokenLedger(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(s *Store, tx *bbolt.Tx) error
		why    error // of every later call
	}{
		"writing fails": {func(s *Store, _ *bbolt.Tx) error {
			_ = syscall.Flock(int(s.f.Fd()), syscall.LOCK_UN) // the mapping would keep it
			return s.f.Close()
		}, os.ErrClosed},
		"it is damaged": {func(s *Store, tx *bbolt.Tx) error {
			whole, err := os.ReadFile(s.path)
			if err := errors.Join(err, os.Truncate(s.path, 0)); err != nil {
				return err
			}
			defer func() {
				if err := os.WriteFile(s.path, whole, 0o600); err != nil {
					t.Error(err)
				}
			}()
			_, _ = tx.Bucket([]byte("operation")).Cursor().First()
			return errors.New("no fault")
		}, ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, Config{Path: tempPath(t), NoSocket: true})
			m := &mortals{}
			g := newGuard(t, s, 1, m)
			a := g.Do(context.Background(), buy("s1"), s.Effect(func(ctx context.Context, tx *bbolt.Tx, d idem.Dispatch) (idem.Outcome, error) {
				out, err := sell(ctx, tx, d)
				return out, errors.Join(err, tc.breaks(s, tx))
			}))
			if a.Err == nil || a.Err.Code != idem.CodeLedgerUnavailable {
				t.Errorf("answer %s, %v", a.Result, a.Err)
			}
			if _, err := s.Load(context.Background()); !errors.Is(err, ErrBroken) || !errors.Is(err, tc.why) {
				t.Errorf("load: error %v", err)
			}
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_ = g.Close(gone) // it tries to record until then
			_ = s.Close()
			s = mustOpen(t, Config{Path: s.path, NoSocket: true})
			m.dead.Store(1)
			wantShop(t, s, idem.StateStarted)
			wantSold(t, newGuard(t, s, 2, m).Do(context.Background(), buy("s1"), s.Effect(sell)))
			if r := wantShop(t, s, idem.StateCommitted); len(r.Attempts) != 2 || r.Attempts[0].Closed != idem.ProofFence {
				t.Errorf("attempts %+v", r.Attempts)
			}
		})
	}
}
