package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// TestStoppedHolder: every call is refused within the time of one answer, however
// many there are, and nothing that was given up is done when the holder goes on.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	path := smallLedger(t, 3)
	c := startChild(t, "hold", path)
	s, err := Join(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	mustPut(t, s, testRow(4))
	c.signal(t, syscall.SIGSTOP)
	for range 2 { // the second time it is known to be silent
		var wg sync.WaitGroup
		begun := time.Now()
		for n := range 30 {
			wg.Go(func() {
				_, err := s.Load(context.Background(), testRow(4).Ref)
				if !errors.Is(err, ErrNoHolder) {
					t.Errorf("load: %v", err)
				}
			})
			wg.Go(func() {
				_, err := s.Commit(context.Background(), idem.Change{Puts: []idem.Row{testRow(100 + n)}})
				if !errors.Is(err, ErrNoHolder) || !errors.Is(err, idem.ErrCommitUnknown) {
					t.Errorf("commit: %v", err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(begun); d > answerTime+answerTime/4 {
			t.Errorf("refused after %s", d)
		}
	}
	c.signal(t, syscall.SIGCONT)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err = s.Commit(context.Background(), idem.Change{Puts: []idem.Row{testRow(5)}}); err == nil {
			break
		}
		if time.Since(begun) > answerTime {
			t.Fatalf("the holder goes on, and: %v", err)
		}
	}
	for n := range 30 {
		snap, err := s.Load(context.Background(), testRow(100+n).Ref)
		if err != nil || snap.Operation(testID(100+n)) != nil {
			t.Errorf("commit %d was given up, and done afterwards (error %v)", n, err)
		}
	}
}

// TestStoppedHolderIsKilled: the next call takes over.
func TestStoppedHolderIsKilled(t *testing.T) {
	t.Parallel()
	path := smallLedger(t, 3)
	c := startChild(t, "hold", path)
	s, err := Join(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c.signal(t, syscall.SIGSTOP)
	if _, err := s.Load(context.Background(), testRow(1).Ref); !errors.Is(err, ErrNoHolder) {
		t.Fatalf("load: %v", err)
	}
	c.kill()
	mustPut(t, s, testRow(4))
	if !s.Holds() {
		t.Error("nobody holds the file")
	}
}

// TestHolderCloses: the calls of others that are on their way when the holder
// closes in order are answered, by it or by the next one.
func TestHolderCloses(t *testing.T) {
	t.Parallel()
	path := smallLedger(t, 3)
	ctx := context.Background()
	for round := range 8 {
		holder := mustOpen(t, Config{Path: path})
		s, err := Join(Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for n := range 16 {
			wg.Go(func() {
				for {
					if _, err := s.Load(ctx, testRow(1).Ref); err != nil {
						t.Errorf("round %d: load: %v", round, err)
					}
					if err := s.Watch(ctx, testID(1), 0); err != nil {
						t.Errorf("round %d: watch: %v", round, err)
					}
					if _, err := s.Commit(ctx, idem.Change{Puts: []idem.Row{testRow(10 + n)}}); err != nil && !errors.Is(err, idem.ErrCommitUnknown) {
						t.Errorf("round %d: commit: %v", round, err)
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		if err := holder.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
		close(stop)
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// signal returns when a process that is to stop has stopped, with all its threads.
func (c *child) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	for sig == syscall.SIGSTOP && !stopped(t, c.cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
}

func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	for _, path := range threads {
		if b, err := os.ReadFile(path); err == nil && !bytes.Contains(b, []byte(") T ")) {
			return false
		}
	}
	return true
}
