//go:build !linux

package pgtest

import (
	"errors"
	"os/exec"
	"syscall"
)

// Elsewhere there is no /proc to find the processes of a killed server in, so
// no server is started at all.

type user struct{}

func unprivileged() (*user, error) {
	return nil, errors.New("the tests with PostgreSQL run on Linux only: run them there, in a container for example")
}

func (*user) own(string) error { return nil }

func (*user) as(cmd *exec.Cmd) *exec.Cmd { return cmd }

func own(cmd *exec.Cmd) *exec.Cmd { return cmd }

func working(string) []int { return nil }

func stopped(int) bool { return true }

func freeSegment(string) {}

const (
	sigPause = syscall.Signal(0)
	sigCont  = syscall.Signal(0)
)
