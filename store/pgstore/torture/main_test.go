package torture

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// ordersEnv holds the orders of a host, as JSON. The test binary that finds them
// is that host.
const ordersEnv = "IDEM_TORTURE_HOST"

func TestMain(m *testing.M) {
	text := os.Getenv(ordersEnv)
	if text == "" {
		os.Exit(pgtest.Main(m))
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = live(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// moment is a time on the clock that all processes of this machine share.
type moment int64

func now() moment {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return moment(ts.Nano())
}

func (m moment) add(d time.Duration) moment { return m + moment(d) }

func (m moment) sub(o moment) time.Duration { return time.Duration(m - o) }
