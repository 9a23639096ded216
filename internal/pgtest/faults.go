package pgtest

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Mode is how a server is shut down.
type Mode syscall.Signal

const (
	// Fast ends every session, and writes a checkpoint.
	Fast = Mode(syscall.SIGINT)
	// Immediate ends without a checkpoint: the next start recovers.
	Immediate = Mode(syscall.SIGQUIT)
)

// Kill kills the postmaster and all its processes, as if the machine had lost
// its power but not its disk cache. [Server.Start] recovers.
func (s *Server) Kill() {
	s.t.Helper()
	s.fault("kill", s.kill)
}

// Stop shuts the server down and waits until nothing of it is left.
func (s *Server) Stop(mode Mode) {
	s.t.Helper()
	s.fault("stop", func() error { return s.stop(syscall.Signal(mode)) })
}

// Start starts a server that was stopped or killed, on the same data and port,
// and returns when it accepts connections.
func (s *Server) Start() {
	s.t.Helper()
	s.fault("start", s.start)
}

// Restart is [Server.Stop] and [Server.Start].
func (s *Server) Restart(mode Mode) {
	s.t.Helper()
	s.Stop(mode)
	s.Start()
}

// Pause stops every process of the server where it is, and returns when none
// runs: connections stay open and nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.fault("pause", s.pause)
}

// Resume lets the processes of a paused server run again.
func (s *Server) Resume() {
	s.t.Helper()
	s.fault("resume", s.resume)
}

func (s *Server) fault(what string, do func() error) {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("PostgreSQL: %s: others share this server, use pgtest.Start", what)
	}
	if err := do(); err != nil {
		s.t.Fatalf("PostgreSQL on port %d: %s: %v", s.port, what, err)
	}
}

func (c *cluster) pause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return errors.New("it does not run")
	}
	// The postmaster first: once it has stopped it starts no more processes.
	signal(c.server.Process.Pid, sigPause)
	for end := time.Now().Add(endTime); ; time.Sleep(look) {
		var running []int
		for _, pid := range working(c.data()) {
			if !stopped(pid) {
				signal(pid, sigPause)
				running = append(running, pid)
			}
		}
		if len(running) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes still run: %v", running)
		}
	}
}

func (c *cluster) resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return errors.New("it does not run")
	}
	for _, pid := range working(c.data()) {
		signal(pid, sigCont)
	}
	return nil
}
