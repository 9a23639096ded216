package proc

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/mcp-idem/mcp-idem"
)

const (
	termGrace = 1 * time.Second       // between TERM and KILL
	firstLook = 2 * time.Millisecond  // after a signal, doubling up to
	lastLook  = 50 * time.Millisecond // this
)

func start(cmd *exec.Cmd) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Until somebody waits for it, the process is there to be read, as a zombie
	// at least.
	st, err := readStat(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return &Child{Cmd: cmd, Group: idem.Group{PGID: st.pid, Start: st.start}}, nil
}

func end(ctx context.Context, c *Child) bool { return EndGroup(ctx, c.Group) }

// EndGroup ends what is left of a group of this boot and namespace, and
// reports whether none of it is left. It signals no process that it cannot
// prove to be of the group: see members.
func EndGroup(ctx context.Context, g idem.Group) bool {
	if g.PGID <= 1 {
		return false
	}
	sig, wait := syscall.SIGTERM, firstLook
	kill := time.Now().Add(termGrace)
	signalled := map[int]syscall.Signal{}
	for {
		left, err := members(g)
		if err != nil {
			return false
		}
		if len(left) == 0 {
			return true
		}
		if sig == syscall.SIGTERM && time.Now().After(kill) {
			sig = syscall.SIGKILL
		}
		for _, m := range left { // newcomers too
			if signalled[m.pid] != sig {
				signal(m, sig)
				signalled[m.pid] = sig
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
			wait = min(2*wait, lastLook)
		}
	}
}

// members are the living processes of the group. The kernel gives a number to
// no new process while a session bears it: a leader with another start time
// means that nothing of ours is left. Once the leader is dead, its session's
// processes that started no earlier than it did are ours. Whatever process
// group they moved to, they are still of the session.
func members(g idem.Group) ([]stat, error) {
	if st, err := readStat(g.PGID); err == nil && st.start != g.Start {
		return nil, nil
	} else if err != nil && !notThere(err) {
		return nil, err
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		if notThere(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st.session == g.PGID && st.start >= g.Start && !st.zombie {
			out = append(out, st)
		}
	}
	return out, nil
}

// signal sends to exactly this process: the handle is opened first and the
// start time compared after, so that a pid that was used again is not hit.
func signal(m stat, sig syscall.Signal) {
	p, err := os.FindProcess(m.pid)
	if err != nil {
		return
	}
	defer p.Release() //nolint:errcheck // nothing to do about it
	if st, err := readStat(m.pid); err == nil && st.start == m.start {
		_ = p.Signal(sig)
	}
}
