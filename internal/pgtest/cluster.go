package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	readyTime = 60 * time.Second // for a start, crash recovery included
	endTime   = 20 * time.Second // for processes to end
	look      = 10 * time.Millisecond
)

// cluster is one data folder and the server that runs on it, or does not. It is
// safe for concurrent use.
type cluster struct {
	rig      *rig
	dir      string // holds data, log and the socket
	host     string // the address the server listens at
	port     int
	settings []string // name=value, of postgresql.conf

	reserved io.Closer // the port, unless it was given

	mu     sync.Mutex
	server *exec.Cmd     // nil when it does not run
	ended  chan struct{} // closed once the postmaster is gone
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *cluster) logFile() string { return filepath.Join(c.dir, "log") }

// create makes a cluster as a copy of the template.
func (r *rig) create(c *cluster) (err error) {
	template, err := r.template()
	if err != nil {
		return err
	}
	if err := r.place(c); err != nil {
		return err
	}
	return r.run(c.dir, "cp", "-a", template, c.data())
}

// place gives a cluster a folder and a port.
func (r *rig) place(c *cluster) (err error) {
	c.rig = r
	if c.host == "" {
		c.host = "127.0.0.1"
	}
	if c.port == 0 {
		if c.port, c.reserved, err = reserve(c.host); err != nil {
			return err
		}
	}
	c.dir, err = r.folder()
	return err
}

// start starts the server and waits until it accepts connections. It may be
// killed while it recovers.
func (c *cluster) start() error {
	ended, err := c.launch()
	if err == nil {
		err = c.ready(ended)
	}
	if err != nil {
		return fmt.Errorf("it does not start: %w\n%s", err, c.log(0))
	}
	return nil
}

// launch starts the postmaster; ended is closed once it is gone.
func (c *cluster) launch() (ended chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		return nil, errors.New("it runs already")
	}
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := []string{
		"-D", c.data(),
		"-c", "listen_addresses=" + c.host,
		"-c", "port=" + strconv.Itoa(c.port),
		"-c", "unix_socket_directories=" + c.dir,
		"-c", "log_line_prefix=%m [%p] %q%u@%d %a: ",
		// Memory in the folder is removed with it, however the server ended.
		"-c", "dynamic_shared_memory_type=mmap",
		// Crash recovery syncs the disk, rather than a thousand files one by one.
		"-c", "recovery_init_sync_method=syncfs",
	}
	for _, s := range c.settings {
		args = append(args, "-c", s)
	}
	cmd := c.rig.command(c.data(), "postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // how it ended is in its log
	}()
	c.server, c.ended = cmd, ended
	return ended, nil
}

// ready waits until a connection is served.
func (c *cluster) ready(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ended:
			return errors.New("the postmaster has ended")
		case <-ctx.Done():
			return err
		case <-time.After(look):
		}
	}
}

// stop sends a signal that shuts down the server, and waits.
func (c *cluster) stop(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return errors.New("it does not run")
	}
	if err := c.server.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-c.ended:
		return c.gone()
	case <-time.After(endTime):
		return fmt.Errorf("it does not stop:\n%s", c.log(0))
	}
}

func (c *cluster) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killNow()
}

// killNow kills the postmaster first, so that it does not clean up behind the
// others.
func (c *cluster) killNow() error {
	if c.server == nil {
		return errors.New("it does not run")
	}
	if err := c.server.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	for _, pid := range working(c.data()) {
		signal(pid, syscall.SIGKILL)
	}
	<-c.ended
	return c.gone()
}

// gone waits until nothing of the server is left, once the postmaster, who
// alone starts processes, has ended.
func (c *cluster) gone() error {
	for end := time.Now().Add(endTime); ; time.Sleep(look) {
		left := working(c.data())
		if len(left) == 0 {
			c.server, c.ended = nil, nil
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes are left: %v", left)
		}
		for _, pid := range left {
			signal(pid, syscall.SIGKILL)
		}
	}
}

// remove ends the server and removes its folder.
func (c *cluster) remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		if err := c.killNow(); err != nil {
			return err
		}
	}
	freeSegment(c.data())
	if c.reserved != nil {
		_ = c.reserved.Close()
	}
	return os.RemoveAll(c.dir)
}

func signal(pid int, sig syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Signal(sig) // it may have ended
	}
}
