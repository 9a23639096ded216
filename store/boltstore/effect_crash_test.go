package boltstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// neighbours are the processes of this machine.
type neighbours struct{}

func (neighbours) Dead(o idem.Owner) bool {
	return errors.Is(syscall.Kill(o.PID, 0), syscall.ESRCH)
}
func (neighbours) EndGroup(context.Context, idem.Owner, idem.Group) bool { return true }

// childSell asks for effects of the steps from first on, in lanes side by side,
// and prints the number of each that was answered well.
func childSell(first, steps, lanes int) {
	s, err := Open(Config{Path: os.Getenv(childPath)})
	if err != nil {
		childFail(err)
	}
	g, err := idem.New(idem.Config{Store: s, Policy: defaultRules(), Processes: neighbours{}, Owner: idem.Owner{Machine: "m", PID: os.Getpid()}})
	if err != nil {
		childFail(err)
	}
	fmt.Println("ready")
	done := make(chan struct{})
	for lane := range lanes {
		go func() {
			defer func() { done <- struct{}{} }()
			for n := first + lane; n < first+steps; n += lanes {
				if a := g.Do(context.Background(), buy(strconv.Itoa(n)), s.Effect(sell)); a.Err != nil {
					childFail(a.Err)
				}
				fmt.Println(n)
			}
		}()
	}
	for range lanes {
		<-done
	}
	os.Exit(0)
}

// TestEffectCrash kills a process with SIGKILL in every gap, one after the other,
// and then lets one run through.
func TestEffectCrash(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "crash.test")
	if out, err := exec.Command("go", "test", "-c", "-tags", "idemcrash", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	run := func(path, point string) error {
		cmd := exec.Command(binary)
		cmd.Env = append(os.Environ(), childEnv+"=sell one", childPath+"="+path, "MCP_IDEM_CRASH="+point)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	after := map[string]idem.State{"claimed": idem.StateStarted, "decided": idem.StateStarted, "recorded": idem.StateCommitted}
	for name, points := range map[string][]string{
		"claimed, not begun":        {"claimed"},
		"written, not committed":    {"decided"},
		"committed, not answered":   {"recorded"},
		"one after the other":       {"claimed", "decided", "claimed", "decided", "recorded"},
		"again and again, in doubt": {"decided", "decided", "decided", "decided"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tempPath(t)
			for _, point := range points {
				var exit *exec.ExitError
				if err := run(path, point); !errors.As(err, &exit) || exit.ExitCode() != -1 {
					t.Fatalf("at %s: %v, want death by SIGKILL", point, err)
				}
				wantFile(t, path, after[point])
			}
			for range 2 {
				if err := run(path, ""); err != nil {
					t.Fatal(err)
				}
				wantFile(t, path, idem.StateCommitted)
			}
		})
	}
}

// wantFile judges a ledger that nobody holds.
func wantFile(t *testing.T, path string, want idem.State) {
	t.Helper()
	if _, err := VerifyRows(path); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Config{Path: path, NoSocket: true})
	wantShop(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEffectRandomKills kills a process at any moment. What is in the file agrees
// with itself each time, and in the end all that was asked for is there once.
func TestEffectRandomKills(t *testing.T) {
	t.Parallel()
	const steps = 40
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	path := tempPath(t)
	answered := map[int]bool{}
	killed := 0
	for round := 0; len(answered) < steps; round++ {
		c := startChild(t, "sell many", path)
		kill := time.AfterFunc(time.Duration(rnd.IntN(50<<min(round, 6)))*time.Millisecond, func() { _ = c.cmd.Process.Kill() })
		for c.out.Scan() {
			n, err := strconv.Atoi(c.out.Text())
			if err != nil {
				t.Fatalf("the child says %q", c.out.Text())
			}
			answered[n] = true
		}
		kill.Stop()
		if _ = c.cmd.Wait(); c.cmd.ProcessState.ExitCode() != 0 {
			killed++
		}
		if _, err := VerifyRows(path); err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, Config{Path: path, NoSocket: true})
		page, err := s.List(context.Background(), idem.Query{Order: idem.ByState, State: idem.StateCommitted, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if n := sold(t, s); int(n) != len(page.Records) || len(page.Records) < len(answered) {
			t.Fatalf("seed %d, round %d: %d effects, %d recorded, %d answered", seed, round, n, len(page.Records), len(answered))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d processes killed", killed)
}
