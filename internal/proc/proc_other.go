//go:build !linux

package proc

import (
	"context"
	"os"
	"os/exec"

	"github.com/mcp-idem/mcp-idem"
)

// self names the process for people; without a boot nothing is ever compared.
func self() (idem.Owner, error) {
	host, err := os.Hostname()
	return idem.Owner{Machine: host, PID: os.Getpid()}, err
}

func gone(int, uint64) bool { return false }

func ending(int, uint64) bool { return false }

// EndGroup cannot prove anything here and signals nobody.
func EndGroup(context.Context, idem.Group) bool { return false }

func start(cmd *exec.Cmd) (*Child, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Child{Cmd: cmd}, nil
}

func end(_ context.Context, c *Child) bool {
	_ = c.Cmd.Process.Kill()
	return false
}
