//go:build idemcrash

// Package crash names the points at which a test may kill the process.
package crash

import (
	"os"
	"syscall"
)

var point = os.Getenv("MCP_IDEM_CRASH")

// At kills the process with SIGKILL when MCP_IDEM_CRASH names the point.
func At(name string) {
	if name == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
