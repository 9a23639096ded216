package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// skewEnv is by how many seconds the wall clock of a skewed gateway is wrong.
const skewEnv = "IDEM_E2E_SKEW"

// skewedGateway is a gateway whose whole process, libraries included, can be made
// to see another time of day. It takes a minute to build, since the standard
// library has to be compiled again.
var skewedGateway = sync.OnceValues(func() (string, error) {
	overlay, err := skewedTime(builds)
	if err != nil {
		return "", err
	}
	return build("gateway-skewed", "-overlay", overlay)
})

const skew = `package time

import "syscall"

var skew = func() (n int64) {
	s, _ := syscall.Getenv("` + skewEnv + `")
	sign := int64(1)
	for _, c := range s {
		if c == '-' {
			sign = -1
		} else {
			n = 10*n + int64(c-'0')
		}
	}
	return sign * n
}()
`

// wantSkew checks that a gateway takes its time of day for an hour later.
func wantSkew(t *testing.T, bin string) {
	t.Helper()
	cmd := exec.Command(bin, "--ledger", "bolt://"+filepath.Join(t.TempDir(), "ledger.db"), "--", "sh", "-c", "exit 3")
	cmd.Env = append(os.Environ(), skewEnv+"=3600")
	said, _ := cmd.CombinedOutput() // its upstream has ended, and it says when
	stamp, _, _ := strings.Cut(string(said), " ")
	when, err := time.Parse(time.RFC3339, stamp)
	if err != nil || time.Until(when) < time.Hour-time.Minute {
		t.Fatalf("its clock is right: %s", said)
	}
}

// skewedTime writes an overlay for package time. Only the wall clock is changed,
// as on a host that was set wrong.
func skewedTime(dir string) (overlay string, err error) {
	const reading, wrong = "\tsec, nsec, mono := runtimeNow()\n", "\tsec += skew\n"
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	b, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	text := string(b)
	if strings.Count(text, reading) == 0 {
		return "", fmt.Errorf("time.Now of %s is not what the skewed clock was made for", runtime.Version())
	}
	text = strings.ReplaceAll(text, reading, reading+wrong)
	files := map[string]string{"time.go": text, "skew.go": skew}
	replace := map[string]string{}
	for name, content := range files {
		replace[filepath.Join(std, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	b, err = json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
