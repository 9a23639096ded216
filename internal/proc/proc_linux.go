package proc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/mcp-idem/mcp-idem"
)

func self() (idem.Owner, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return idem.Owner{}, err
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return idem.Owner{}, err
	}
	st, err := readStat(os.Getpid())
	if err != nil {
		return idem.Owner{}, err
	}
	bootID := strings.TrimSpace(string(boot))
	return idem.Owner{Machine: machine(bootID), Boot: bootID + " " + ns, PID: os.Getpid(), Start: st.start}, nil
}

// machine hashes the machine's id with the host's name: images carry one
// machine id to many hosts. Without an id the boot stands in for it, and then
// another boot counts as another machine.
func machine(boot string) string {
	id := ""
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := os.ReadFile(file); err == nil && len(bytes.TrimSpace(b)) > 0 {
			id = string(bytes.TrimSpace(b))
			break
		}
	}
	if id == "" {
		id = "boot " + boot
	}
	host, _ := os.Hostname()
	sum := sha256.Sum256([]byte(id + "\x00" + host))
	return hex.EncodeToString(sum[:10])
}

// stat is what /proc says about a process.
type stat struct {
	pid     int
	session int
	start   uint64 // clock ticks after boot
	zombie  bool   // has ended and only waits to be reaped
	exiting bool   // its first thread is on its way out
}

// flagExiting is the kernel's PF_EXITING.
const flagExiting = 0x4

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	// The name may hold anything, brackets and spaces included.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	s := stat{pid: pid}
	s.session, _ = strconv.Atoi(string(f[3]))
	if s.start, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return stat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	// A process whose first thread alone has ended shows as a zombie too.
	s.zombie = (f[0][0] == 'Z' || f[0][0] == 'X') && len(f[17]) == 1 && f[17][0] <= '1'
	flags, _ := strconv.ParseUint(string(f[6]), 10, 64)
	s.exiting = flags&flagExiting != 0
	return s, nil
}

// notThere reports whether the error says that the process does not exist.
func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// ending reports whether the process has ended or is about to.
func ending(pid int, start uint64) bool {
	st, err := readStat(pid)
	if err != nil {
		return notThere(err)
	}
	return st.start != start || st.zombie || st.exiting
}

// gone reports whether the process with this pid and start time has ended.
func gone(pid int, start uint64) bool {
	st, err := readStat(pid)
	if err != nil {
		return notThere(err)
	}
	return st.start != start || st.zombie
}
