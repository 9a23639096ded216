package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// wire is a network of hosts, with this machine at one end. Where the machine
// allows no network namespaces the hosts share its own.
type wire struct {
	t      *testing.T
	addr   string // of this machine
	prefix string // of the hosts' addresses; empty: they share ours
	last   atomic.Int32
}

// host is another machine as far as a process can tell: it has its own name,
// machine id, process ids, mounts and, where possible, address. All of it ends
// with its first process.
type host struct {
	t    *testing.T
	name string
	addr string // empty: it shares this machine's
	skew time.Duration
	init *exec.Cmd
}

// newWire makes the network. One host that nobody uses keeps it up.
func newWire(t *testing.T) *wire {
	t.Helper()
	if testing.Short() {
		t.Skip("hosts are not for -short")
	}
	w := &wire{t: t, addr: "127.0.0.1"}
	if os.Geteuid() == 0 {
		w.prefix = fmt.Sprintf("10.%d.%d.", 100+rand.IntN(100), rand.IntN(256))
		w.addr = w.prefix + "1"
	}
	w.host(t)
	return w
}

// host starts a host. Only root may make network namespaces that lead to this
// machine; others may make the rest where users may have namespaces of their own.
func (w *wire) host(t *testing.T) *host {
	t.Helper()
	n := int(w.last.Add(1))
	h := &host{t: t, name: fmt.Sprintf("host-%d", n)}
	id := filepath.Join(t.TempDir(), "machine-id")
	must(t, os.WriteFile(id, fmt.Appendf(nil, "%032x\n", rand.Uint64()), 0o600))
	self, err := os.Executable()
	must(t, err)
	h.init = exec.Command(self, "__host", h.name, id)
	h.init.Stderr = os.Stderr
	h.init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS}
	if w.prefix != "" {
		h.init.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	} else {
		h.init.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		h.init.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		h.init.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	_, err = h.init.StdinPipe() // it ends with us
	must(t, err)
	out, err := h.init.StdoutPipe()
	must(t, err)
	if err := h.init.Start(); err != nil {
		noHosts(t, err)
	}
	t.Cleanup(h.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		noHosts(t, fmt.Errorf("its first process does not start: %q, %w", line, err))
	}
	if w.prefix != "" {
		h.addr = w.prefix + strconv.Itoa(1+n)
		w.plug(h, n)
	}
	return h
}

func noHosts(t *testing.T, err error) {
	t.Helper()
	err = fmt.Errorf("no host can be made of namespaces here: %w; run the tests as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)", err)
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// plug lays a cable to the host. It goes with the host.
func (w *wire) plug(h *host, n int) {
	w.t.Helper()
	end := fmt.Sprintf("mi%s.%d", strings.ReplaceAll(strings.TrimSuffix(w.prefix[3:], "."), ".", "-"), n)
	pid := strconv.Itoa(h.init.Process.Pid)
	mustRun(h.t, exec.Command("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", pid))
	mustRun(h.t, exec.Command("ip", "addr", "add", w.addr, "peer", h.addr+"/32", "dev", end))
	mustRun(h.t, exec.Command("ip", "link", "set", end, "up"))
	for _, args := range []string{"link set lo up", "link set eth0 up", "addr add " + h.addr + " peer " + w.addr + "/32 dev eth0"} {
		mustRun(h.t, h.enter(exec.Command("ip", strings.Fields(args)...)))
	}
}

func mustRun(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// hostMain is the first process of a host: NAME and a file with the machine's id.
// The host ends with its standard input.
func hostMain(args []string) int {
	if err := furnish(args[0], args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		return 1
	}
	fmt.Println("ready")
	go func() { // the dead are this process's to bury
		for {
			if pid, err := unix.Wait4(-1, nil, 0, nil); pid <= 0 && err != nil {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func furnish(name, id string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if _, err := os.Stat("/etc/machine-id"); err == nil { // else the name has to do
		if err := unix.Mount(id, "/etc/machine-id", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("/etc/machine-id: %w", err)
		}
	}
	return unix.Sethostname([]byte(name))
}

// enter makes a command one that runs on the host.
func (h *host) enter(cmd *exec.Cmd) *exec.Cmd {
	args := []string{"--target", strconv.Itoa(h.init.Process.Pid), "--mount", "--uts", "--pid"}
	if h.addr != "" {
		args = append(args, "--net")
	} else {
		args = append(args, "--user", "--preserve-credentials")
	}
	in := exec.Command("nsenter", append(append(args, "--"), cmd.Args...)...)
	in.Env = cmd.Env
	if in.Env == nil {
		in.Env = os.Environ()
	}
	in.Env = append(in.Env, fmt.Sprintf("%s=%d", skewEnv, int(h.skew.Seconds())))
	return in
}

// kill ends the host and everything on it at once.
func (h *host) kill() {
	_ = h.init.Process.Kill() // it may be dead
	_ = h.init.Wait()
}

// freeze stops everything on the host, as a hypervisor does with a guest.
func (h *host) freeze() { h.signal(syscall.SIGSTOP) }

func (h *host) thaw() { h.signal(syscall.SIGCONT) }

func (h *host) signal(s syscall.Signal) {
	h.t.Helper()
	for range 2 { // who was started meanwhile, too
		for _, pid := range h.pids() {
			_ = syscall.Kill(pid, s) // it may have ended
		}
	}
}

// pids are the host's processes but the first one, as this machine counts them.
func (h *host) pids() []int {
	h.t.Helper()
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.init.Process.Pid))
	must(h.t, err)
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	must(h.t, err)
	var pids []int
	for _, link := range links {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if ns, err := os.Readlink(link); err == nil && ns == mine && pid != h.init.Process.Pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pid finds the host's process that was started with this argument.
func (h *host) pid(arg string) int {
	h.t.Helper()
	for _, pid := range h.pids() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		if args := strings.Split(string(b), "\x00"); len(args) > 2 && (args[1] == arg || args[2] == arg) {
			return pid
		}
	}
	h.t.Fatalf("nothing on %s was started with %s", h.name, arg)
	return 0
}
