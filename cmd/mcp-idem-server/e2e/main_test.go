package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/npm"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// repository is the module's root, seen from this package's directory.
const repository = "../../.."

// builds is where the gateway is built, once a run and only when asked for.
var builds string

// TestMain lets the test binary be the relay, the tickets server and the first
// process of a host too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "__relay":
			os.Exit(relay.Main(os.Args[2:]))
		case "__tickets":
			os.Exit(demo.TicketsMain(os.Args[2:], os.Stderr))
		case "__host":
			os.Exit(hostMain(os.Args[2:]))
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if builds, err = os.MkdirTemp("", "mcp-idem-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(builds) }()
	return pgtest.Main(m)
}

var (
	gateway      = sync.OnceValues(func() (string, error) { return build("gateway") })
	crashGateway = sync.OnceValues(func() (string, error) { return build("gateway-crash", "-tags", "idemcrash") })
)

func build(name string, flags ...string) (string, error) {
	path := filepath.Join(builds, name)
	args := append(append([]string{"build", "-o", path}, flags...), "..")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return path, nil
}

func mustBuild(t *testing.T, which func() (string, error)) string {
	t.Helper()
	path, err := which()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// needServers skips a test for want of the npm servers, and fails it in CI.
func needServers(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("real servers are not for -short")
	}
	root, err := filepath.Abs(npm.Root(repository))
	if err != nil {
		t.Fatal(err)
	}
	if err := npm.Installed(root); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return root
}

// deadline is for one wait; a test that meets it hangs.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
