package pgtest

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// rig is what all servers of a test process share: the programs, the user who
// runs them, a folder with one initialised cluster to copy, and a watchdog.
type rig struct {
	bin  string
	user *user
	base string

	watchdog *exec.Cmd
	life     io.Closer // its end tells the watchdog that this process is over

	servers  atomic.Int64
	template func() (string, error)   // the folder of the cluster to copy
	shared   func() (*cluster, error) // the server that all tests share
}

// process is the rig of this process: initdb is slow, so it runs once, and one
// watchdog sees the end of a process once.
var process struct {
	sync.Mutex
	rig *rig
	err error
}

// need returns the rig of this process, or ends the test when the machine has
// no PostgreSQL.
func need(t testing.TB) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: a PostgreSQL is started")
	}
	process.Lock()
	defer process.Unlock()
	if process.rig == nil && process.err == nil {
		process.rig, process.err = newRig()
	}
	var no *absent
	switch {
	case errors.As(process.err, &no):
		missing(t, no)
	case process.err != nil:
		t.Fatal(process.err)
	}
	return process.rig
}

// absent says that the machine lacks something, and how to get it.
type absent struct{ error }

func newRig() (*rig, error) {
	bin, err := binaries()
	if err != nil {
		return nil, &absent{err}
	}
	u, err := unprivileged()
	if err != nil {
		return nil, &absent{err}
	}
	base, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	r := &rig{bin: bin, user: u}
	// Processes are found by the folder they work in, as the kernel spells it.
	if r.base, err = filepath.EvalSymlinks(base); err != nil {
		return nil, err
	}
	if err := r.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.base))
	}
	if err := u.own(r.base); err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.template = sync.OnceValues(r.initdb)
	r.shared = sync.OnceValues(func() (*cluster, error) {
		c := &cluster{}
		if err := r.create(c); err != nil {
			return nil, err
		}
		return c, c.start()
	})
	return r, nil
}

//go:embed watchdog.sh
var watchdog string

// watch starts the watchdog: a shell that outlives this process, however that
// ends, and cleans up behind it.
func (r *rig) watch() error {
	ours, life, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	r.watchdog = own(exec.Command("sh", "-c", watchdog, "pgtest-watchdog", r.base))
	r.watchdog.Stdin, r.life = ours, life
	if err := r.watchdog.Start(); err != nil {
		return errors.Join(fmt.Errorf("the watchdog: %w", err), life.Close())
	}
	return nil
}

// close ends every server of this process and removes their folders.
func (r *rig) close() error {
	return errors.Join(r.life.Close(), r.watchdog.Wait())
}

// initdb makes the cluster that every server begins as a copy of.
func (r *rig) initdb() (string, error) {
	dir := filepath.Join(r.base, "template")
	err := r.run(r.base, "initdb", "-D", dir, "-U", "postgres", "--auth=trust",
		"--locale=C.UTF-8", "--encoding=UTF8", "--no-sync", "--no-instructions")
	if err != nil {
		return "", err
	}
	// Whoever reaches the address may connect: only the tests of one machine do.
	hba := "local all all trust\nhost all all all trust\n" +
		"local replication all trust\nhost replication all all trust\n"
	return dir, os.WriteFile(filepath.Join(dir, "pg_hba.conf"), []byte(hba), 0o600)
}

// folder makes the folder of the next server.
func (r *rig) folder() (string, error) {
	dir := filepath.Join(r.base, strconv.FormatInt(r.servers.Add(1), 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, r.user.own(dir)
}

// run runs a program of PostgreSQL, or of the system, to its end.
func (r *rig) run(dir, program string, args ...string) error {
	cmd := r.command(dir, program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// command is a program of PostgreSQL, or of the system, run as the unprivileged
// user in dir.
func (r *rig) command(dir, program string, args ...string) *exec.Cmd {
	if p := filepath.Join(r.bin, program); exists(p) {
		program = p
	}
	cmd := r.user.as(exec.Command(program, args...))
	cmd.Dir, cmd.Env = dir, environment()
	return cmd
}

// environment is ours without what would steer PostgreSQL's programs.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "PG") })
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
