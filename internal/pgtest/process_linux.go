package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// user runs the servers: PostgreSQL refuses root.
type user struct{ credential *syscall.Credential } // nil: who we are

// unprivileged returns who we are or, for root, a user to run as.
func unprivileged() (*user, error) {
	if os.Geteuid() != 0 {
		return &user{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &user{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody: run the tests as another user")
}

// own gives a file or folder to the user.
func (u *user) own(file string) error {
	if u.credential == nil {
		return nil
	}
	return os.Chown(file, int(u.credential.Uid), int(u.credential.Gid))
}

// as makes the user run the command.
func (u *user) as(cmd *exec.Cmd) *exec.Cmd {
	cmd = own(cmd)
	cmd.SysProcAttr.Credential = u.credential
	return cmd
}

// own puts the command out of reach of the terminal's signals.
func own(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// working returns the processes that work in a folder: every process of a
// server works in its data folder. Each of them leads a session of its own, and
// a dead postmaster no longer counts as their parent, so nothing else holds
// them together.
func working(dir string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var pids []int
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == dir {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// stopped reports whether SIGSTOP has taken effect on the process.
func stopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // it is gone
	}
	i := bytes.LastIndexByte(b, ')')
	return len(b) > i+2 && b[i+2] == 'T'
}

// freeSegment gives back the shared memory segment of a killed server. The
// server that starts next in its folder would have done that.
func freeSegment(data string) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return // it was shut down in order
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 7 {
		return // it did not come that far
	}
	if f := strings.Fields(lines[6]); len(f) == 2 {
		if id, err := strconv.Atoi(f[1]); err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
	}
}

const (
	sigPause = syscall.SIGSTOP
	sigCont  = syscall.SIGCONT
)
