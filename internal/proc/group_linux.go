package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	if err := startBound(cmd); err != nil {
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
// reports whether it is proven that none of it is left. It signals no process
// that it cannot prove to be of the group: see look.
func EndGroup(ctx context.Context, g idem.Group) bool {
	if g.PGID <= 1 {
		return false
	}
	sig, wait := syscall.SIGTERM, firstLook
	kill := time.Now().Add(termGrace)
	signalled := map[int]syscall.Signal{}
	var before *scan
	for {
		now, err := look(g)
		if err != nil {
			return false
		}
		if now.proves(before) {
			return true
		}
		if sig == syscall.SIGTERM && time.Now().After(kill) {
			sig = syscall.SIGKILL
		}
		for _, m := range now.living { // newcomers too
			if signalled[m.pid] != sig {
				signal(m, sig)
				signalled[m.pid] = sig
			}
		}
		before = now
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
			wait = min(2*wait, lastLook)
		}
	}
}

// scan is what one walk through /proc saw of a group.
type scan struct {
	over     bool // the number bears another leader: nothing of the group can be left
	living   []stat
	zombies  map[int]uint64 // their start times
	vanished bool           // a process was listed and gone when it was read
}

// proves reports whether nothing of the group is left. The walk lists first and
// reads after, so one that finds nobody proves nothing by itself: a process may
// have started another behind the list and be gone, or a zombie, when it is
// read. It proves it where the walk before found nobody either, nothing vanished
// during this one, and each zombie was one already when it began: then nobody
// was there who could have started anything.
func (s *scan) proves(before *scan) bool {
	if s.over {
		return true
	}
	if before == nil || s.vanished || len(s.living) > 0 || len(before.living) > 0 {
		return false
	}
	for pid, start := range s.zombies {
		if was, ok := before.zombies[pid]; !ok || was != start {
			return false
		}
	}
	return true
}

// look walks through /proc. The kernel gives a number to no new process while a
// session bears it: a leader with another start time means that nothing of ours
// is left. Once the leader is dead, its session's processes that started no
// earlier than it did are ours. Whatever process group they moved to, they are
// still of the session.
func look(g idem.Group) (*scan, error) {
	if st, err := readStat(g.PGID); err == nil && st.start != g.Start {
		return &scan{over: true}, nil
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
	s := &scan{zombies: map[int]uint64{}}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := readStat(pid)
		switch {
		case notThere(err):
			s.vanished = true
		case err != nil:
			return nil, err
		case st.session != g.PGID || st.start < g.Start:
		case st.zombie:
			s.zombies[pid] = st.start
		default:
			s.living = append(s.living, st)
		}
	}
	return s, nil
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

// startBound starts a command that gets TERM when this process dies, however it
// dies. The kernel binds that to the thread that starts it, so that thread is
// kept for as long as the command runs.
func startBound(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		pid := cmd.Process.Pid
		started <- nil
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), syscall.EINTR) {
		}
	}()
	return <-started
}
