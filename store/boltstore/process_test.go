package boltstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// The test binary is also the other process: childEnv says what it does, to the
// ledger that childPath names.
const (
	childEnv  = "BOLTSTORE_TEST_CHILD"
	childPath = "BOLTSTORE_TEST_PATH"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "hold":
		childHold(Config{Path: os.Getenv(childPath)})
	case "hold without a socket":
		childHold(Config{Path: os.Getenv(childPath), NoSocket: true})
	case "commit":
		childCommit()
	case "sell one":
		childSell(0, 1, 1)
	case "sell many":
		childSell(0, 40, 4)
	}
}

func childFail(err error) {
	fmt.Println("error:", err)
	os.Exit(1)
}

// childHold opens the ledger, says so, and waits to be killed.
func childHold(cfg Config) {
	if _, err := Open(cfg); err != nil {
		childFail(err)
	}
	_ = writePID(cfg.Path)
	fmt.Println("ready")
	time.Sleep(time.Minute)
	os.Exit(1)
}

// childCommit commits from several goroutines and prints the number of each
// operation once its commit has returned.
func childCommit() {
	s, err := Open(Config{Path: os.Getenv(childPath)})
	if err != nil {
		childFail(err)
	}
	fmt.Println("ready")
	page, err := s.List(context.Background(), idem.Query{Limit: 1000})
	if err != nil {
		childFail(err)
	}
	start := len(page.Records)
	for g := range 4 {
		go func() {
			for i := g; ; i += 4 {
				n := start*10 + i
				if _, err := s.Commit(context.Background(), idem.Change{Puts: []idem.Row{testRow(n)}}); err != nil {
					childFail(err)
				}
				fmt.Println(n) // one write each: a line is whole or not there
			}
		}()
	}
	time.Sleep(time.Minute)
	os.Exit(1)
}

type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// startChild returns when the child has opened the ledger.
func startChild(t *testing.T, what, path string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what, childPath+"="+path)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, bufio.NewScanner(pipe)}
	t.Cleanup(c.kill)
	if !c.out.Scan() || c.out.Text() != "ready" {
		t.Fatalf("the child says %q", c.out.Text())
	}
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // SIGKILL
	_ = c.cmd.Wait()
}

func TestLockedByAnotherProcess(t *testing.T) {
	t.Parallel()
	path := smallLedger(t, 3)
	c := startChild(t, "hold without a socket", path)
	start := time.Now()
	_, err := Open(Config{Path: path})
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %v to say", took)
	}
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), strconv.Itoa(c.cmd.Process.Pid)) {
		t.Errorf("error %v, want ErrLocked with file and pid %d", err, c.cmd.Process.Pid)
	}
	for _, check := range []func(string) (Report, error){Verify, VerifyRows} {
		if _, err := check(path); !errors.Is(err, ErrLocked) {
			t.Errorf("verify: error %v", err)
		}
	}
	if _, err := Dial(path); !errors.Is(err, ErrNoHolder) {
		t.Errorf("dial: error %v", err)
	}
	if _, err := Join(Config{Path: path}); !errors.Is(err, ErrNoHolder) || !errors.Is(err, ErrLocked) {
		t.Errorf("join: error %v", err)
	}
	c.kill()
	if err := readAll(path, 3); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestKilledWhileCommitting: what was acknowledged is there after a kill, whole.
func TestKilledWhileCommitting(t *testing.T) {
	t.Parallel()
	path := tempPath(t)
	acked := map[int]bool{}
	for round := range 3 {
		c := startChild(t, "commit", path)
		wait := time.AfterFunc(time.Duration(150+round*70)*time.Millisecond, func() { _ = c.cmd.Process.Kill() })
		for c.out.Scan() {
			n, err := strconv.Atoi(c.out.Text())
			if err != nil {
				t.Fatalf("the child says %q", c.out.Text())
			}
			acked[n] = true
		}
		wait.Stop()
		c.kill()
		if _, err := VerifyRows(path); err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, Config{Path: path})
		for n := range acked {
			ref := testRow(n).Ref
			snap, err := s.Load(context.Background(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if snap.Operation(ref.ID) == nil {
				t.Fatalf("round %d: operation %d was acknowledged and is missing", round, n)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acked) == 0 {
		t.Fatal("nothing was committed before the kills")
	}
	t.Logf("%d commits acknowledged", len(acked))
}

// TestTakeover: a process that shares the ledger goes on when the holder is
// killed, and finds what it had recorded.
func TestTakeover(t *testing.T) {
	path := smallLedger(t, 3)
	c := startChild(t, "hold", path)
	s, err := Join(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if s.Holds() {
		t.Fatal("two processes hold the file")
	}
	mustPut(t, s, testRow(4))
	woken := make(chan error, 1)
	go func() { woken <- s.Watch(context.Background(), testID(4), 1) }()
	time.Sleep(50 * time.Millisecond)
	c.kill()
	if err := <-woken; err != nil {
		t.Errorf("a watch that lost its holder: %v", err)
	}
	if snap, err := s.Load(context.Background(), testRow(4).Ref); err != nil || snap.Operation(testID(4)) == nil {
		t.Fatalf("after the takeover: %v", err)
	}
	if !s.Holds() {
		t.Error("nobody holds the file")
	}
	mustPut(t, s, testRow(5))
}
