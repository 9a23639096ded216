package proc

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

var _ idem.Processes = (*System)(nil)

func system(t *testing.T) *System {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// shell starts a script and reads the pids it prints on its first line.
func shell(t *testing.T, script string) (*Child, []int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { EndGroup(context.Background(), c.Group) })
	line, _ := bufio.NewReader(out).ReadString('\n')
	var pids []int
	for _, f := range strings.Fields(line) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	return c, pids
}

func alive(pid int) bool {
	st, err := readStat(pid)
	return err == nil && !st.zombie
}

func TestDead(t *testing.T) {
	s := system(t)
	me := s.Self()
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	with := func(f func(*idem.Owner)) idem.Owner { o := me; f(&o); return o }
	boot, ns, _ := strings.Cut(me.Boot, " ")
	for name, c := range map[string]struct {
		o    idem.Owner
		want bool
	}{
		"this process":       {me, false},
		"another start time": {with(func(o *idem.Owner) { o.Start++ }), true},
		"no such pid":        {with(func(o *idem.Owner) { o.PID = child.Process.Pid }), true},
		"no pid":             {with(func(o *idem.Owner) { o.PID = 0 }), false},
		"another boot":       {with(func(o *idem.Owner) { o.Boot = "other " + ns }), true},
		"another namespace":  {with(func(o *idem.Owner) { o.Boot = boot + " pid:[1]"; o.Start++ }), false},
		"another machine":    {with(func(o *idem.Owner) { o.Machine = "other"; o.Boot = "other " + ns }), false},
		"nothing is known":   {idem.Owner{}, false},
	} {
		if got := s.Dead(c.o); got != c.want {
			t.Errorf("%s: Dead is %v, want %v", name, got, c.want)
		}
	}
}

func TestDeadZombie(t *testing.T) {
	s := system(t)
	c, err := Start(exec.Command("true"))
	if err != nil {
		t.Fatal(err)
	}
	o := s.Self()
	o.PID, o.Start = c.Group.PGID, c.Group.Start
	for end := time.Now().Add(5 * time.Second); !s.Dead(o); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a zombie counts as alive")
		}
	}
	if err := c.Cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestEndGroupTakesGrandchildren(t *testing.T) {
	c, pids := shell(t, "sleep 60 & a=$!; (trap '' TERM; sleep 60 & echo $a $!; wait) & wait")
	go c.Cmd.Wait() //nolint:errcheck // it is killed
	if len(pids) != 2 || !alive(pids[0]) || !alive(pids[1]) {
		t.Fatalf("the script did not start: %v", pids)
	}
	if !c.End(short(t)) {
		t.Error("End: something is left")
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("%d is alive", pid)
		}
	}
}

func TestEndGroupAfterTheLeader(t *testing.T) {
	c, pids := shell(t, "sleep 60 & echo $!")
	if err := c.Cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !alive(pids[0]) {
		t.Fatal("the orphan is not alive")
	}
	s := system(t)
	if !s.EndGroup(short(t), s.Self(), c.Group) {
		t.Error("EndGroup: something is left")
	}
	if alive(pids[0]) {
		t.Error("the orphan is alive")
	}
	if !s.EndGroup(short(t), s.Self(), c.Group) {
		t.Error("a group that has ended is not known to have")
	}
}

// TestEndGroupIsNotFooled: processes that start another and exit leave a walk
// through /proc nothing to see, and are not gone for that.
func TestEndGroupIsNotFooled(t *testing.T) {
	t.Run("a helper started on TERM", func(t *testing.T) {
		for range 15 {
			c, _ := shell(t, `trap 'sleep 5 & exit' TERM; echo $$; while :; do sleep 0.01; done`)
			go c.Cmd.Wait() //nolint:errcheck // it is killed
			time.Sleep(10 * time.Millisecond)
			if !c.End(short(t)) {
				t.Fatal("something is left")
			}
			if left := living(t, c); len(left) > 0 {
				t.Fatalf("End says that nothing is left: %+v", left)
			}
		}
	})
	t.Run("a chain", func(t *testing.T) {
		for range 5 {
			dir := t.TempDir()
			stop := filepath.Join(dir, "stop")
			script := filepath.Join(dir, "chain.sh")
			body := "#!/bin/sh\ntrap '' TERM\n[ -e " + stop + " ] && exit\n" + script + " &\nexit\n"
			if err := os.WriteFile(script, []byte(body), 0o700); err != nil {
				t.Fatal(err)
			}
			c, err := Start(exec.Command(script))
			if err != nil {
				t.Fatal(err)
			}
			go c.Cmd.Wait() //nolint:errcheck // it ends at once
			time.Sleep(30 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			ended := c.End(ctx)
			cancel()
			var left []stat
			for range 20 {
				left = append(left, living(t, c)...)
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if ended && len(left) > 0 {
				t.Errorf("End says that nothing is left: %+v", left)
			}
			if !c.End(short(t)) {
				t.Error("the end of the chain is not seen")
			}
		}
	})
}

func living(t *testing.T, c *Child) []stat {
	t.Helper()
	s, err := look(c.Group)
	if err != nil {
		t.Fatal(err)
	}
	return s.living
}

func TestProof(t *testing.T) {
	quiet := &scan{}
	zombie := &scan{zombies: map[int]uint64{7: 1}}
	for name, c := range map[string]struct {
		before, now *scan
		want        bool
	}{
		"one walk":                       {nil, quiet, false},
		"two":                            {quiet, quiet, true},
		"another leader":                 {nil, &scan{over: true}, true},
		"a living one":                   {quiet, &scan{living: []stat{{pid: 7}}}, false},
		"a living one before":            {&scan{living: []stat{{pid: 7}}}, quiet, false},
		"one vanished":                   {quiet, &scan{vanished: true}, false},
		"one vanished before":            {&scan{vanished: true}, quiet, true},
		"a new zombie":                   {quiet, zombie, false},
		"a zombie with another's number": {&scan{zombies: map[int]uint64{7: 2}}, zombie, false},
		"a zombie that stays":            {zombie, zombie, true},
	} {
		if got := c.now.proves(c.before); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEndGroupSparesStrangers(t *testing.T) {
	c, pids := shell(t, "sleep 60 & echo $!; wait")
	go c.Cmd.Wait() //nolint:errcheck // it is killed
	s := system(t)
	older := c.Group
	older.Start-- // the number was used again: this leader is not ours
	if !s.EndGroup(short(t), s.Self(), older) {
		t.Error("a leader with another start time: ours is gone")
	}
	elsewhere := s.Self()
	elsewhere.Machine = "other"
	if s.EndGroup(short(t), elsewhere, c.Group) {
		t.Error("a group on another machine is known to have ended")
	}
	if s.EndGroup(short(t), s.Self(), idem.Group{}) {
		t.Error("no group is known to have ended")
	}
	if !alive(pids[0]) || !alive(c.Group.PGID) {
		t.Error("a stranger was signalled")
	}
}

func TestStartLeadsASession(t *testing.T) {
	c, _ := shell(t, "echo; sleep 60")
	st, err := readStat(c.Group.PGID)
	if err != nil || st.session != c.Group.PGID || st.start != c.Group.Start {
		t.Errorf("session %d of %d, start %d, %v", st.session, c.Group.PGID, st.start, err)
	}
	pgid, _ := syscall.Getpgid(c.Group.PGID)
	if pgid != c.Group.PGID || pgid == syscall.Getpgrp() {
		t.Errorf("process group %d, ours is %d", pgid, syscall.Getpgrp())
	}
	if err := c.Cmd.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	_ = c.Cmd.Wait()
}

// TestMain lets the test binary be a process that starts a child and is killed.
func TestMain(m *testing.M) {
	if os.Getenv("PROC_TEST_PARENT") == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sleep", "60")
	cmd.Stdout = os.Stdout
	if _, err := Start(cmd); err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n")
	time.Sleep(time.Minute)
}

func TestChildEndsWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "PROC_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	time.Sleep(100 * time.Millisecond)
	if !alive(child) {
		t.Fatal("the child ended while its parent lived")
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for end := time.Now().Add(5 * time.Second); alive(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child outlived its killed parent")
		}
	}
}
