package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// alive says whether a process exists and is no zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(b, []byte(") ")) // the name may hold anything
	return len(after) > 0 && after[0] != 'Z'
}

func mentions(pid int, file, text string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return err == nil && bytes.Contains(b, []byte(text))
}

// gone waits until a process has ended.
func gone(t *testing.T, who string, pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !alive(pid) {
			return
		}
	}
	t.Errorf("%s (process %d) still runs", who, pid)
}
