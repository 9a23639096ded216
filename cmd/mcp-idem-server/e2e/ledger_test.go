package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
)

// ledger is a kind of ledger. A stage is given a new one.
type ledger interface {
	fmt.Stringer
	// url names a new ledger. home is a directory for it.
	url(t *testing.T, home string) string
}

// ledgers are those that every crash is tried on.
func ledgers() []ledger { return []ledger{bolt{}, postgres{}} }

type bolt struct{}

func (bolt) String() string { return "bolt" }

func (bolt) url(_ *testing.T, home string) string {
	return "bolt://" + filepath.Join(home, "ledger.db")
}

// postgres is a schema on the server that the tests share.
type postgres struct{}

func (postgres) String() string { return "postgres" }

func (postgres) url(t *testing.T, _ string) string {
	t.Helper()
	return pgtest.Shared(t).URL("postgres", fmt.Sprintf("schema=stage_%08x", rand.Uint32()))
}
