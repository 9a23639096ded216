// Package proc names processes for good and ends what they leave behind.
//
// A pid is used again, so it proves nothing. What this package compares is
// (machine, boot and pid namespace, pid, start time), and it answers "dead" or
// "ended" only where the kernel says so:
//
//   - same machine, another boot: every process of that boot is gone;
//   - same boot and namespace: no such pid, another start time or a zombie
//     means that the process is gone;
//   - anything else, another container on the same kernel included, is never
//     known.
//
// A child that [Start] starts leads a session of its own, so that everything it
// starts can be found again by that session even when the child itself is gone.
// Only a process that moves to a session of its own escapes.
//
// On systems other than Linux children are started and killed, and nothing is
// ever proven: every question is answered with false.
package proc

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/mcp-idem/mcp-idem"
)

// System answers for this machine. It is safe for concurrent use.
type System struct{ self idem.Owner }

// New reads who this process is.
func New() (*System, error) {
	o, err := self()
	if err != nil {
		return nil, fmt.Errorf("cannot tell this process from others: %w", err)
	}
	return &System{self: o}, nil
}

// Self names this process.
func (s *System) Self() idem.Owner { return s.self }

// Dead implements [idem.Processes].
func (s *System) Dead(o idem.Owner) bool {
	switch s.place(o) {
	case otherBoot:
		return true
	case here:
		return o.PID > 0 && gone(o.PID, o.Start)
	}
	return false
}

// EndGroup implements [idem.Processes]. A group without a number is never
// known to have ended.
func (s *System) EndGroup(ctx context.Context, o idem.Owner, g idem.Group) bool {
	if g.PGID <= 1 {
		return false
	}
	switch s.place(o) {
	case otherBoot:
		return true
	case here:
		return EndGroup(ctx, g)
	}
	return false
}

type place int

const (
	elsewhere place = iota // nothing can be known
	otherBoot              // of this machine
	here
)

// place says where a process ran. Boot holds the boot's id and, behind a
// space, the pid namespace: the same pid in two containers is two processes.
func (s *System) place(o idem.Owner) place {
	if o.Machine == "" || o.Boot == "" || o.Machine != s.self.Machine {
		return elsewhere
	}
	if o.Boot == s.self.Boot {
		return here
	}
	boot, _, _ := strings.Cut(o.Boot, " ")
	if mine, _, _ := strings.Cut(s.self.Boot, " "); boot != mine {
		return otherBoot
	}
	return elsewhere
}

// Child is a process that was started here. Whoever started it calls Wait.
type Child struct {
	Cmd   *exec.Cmd
	Group idem.Group // zero where groups are not known
}

// Ending reports whether the process has ended or is about to, also where
// nobody has waited for it yet. Linux only; elsewhere it never is.
func (c *Child) Ending() bool { return ending(c.Group.PGID, c.Group.Start) }

// Start starts a command as the leader of its own session and process group,
// out of reach of the terminal's signals and of a supervisor's group kill. On
// Linux it gets TERM when this process dies; what it has started itself does
// not.
func Start(cmd *exec.Cmd) (*Child, error) { return start(cmd) }

// End ends the child and everything that is left of its session: TERM, a short
// grace, KILL. It reports whether it is known that nothing is left.
func (c *Child) End(ctx context.Context) bool { return end(ctx, c) }
