package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/mcp"
)

func TestMain(m *testing.M) {
	testscript.Main(withServers{m}, map[string]func(){"mcp-idem-server": main})
}

// withServers runs the tests and ends the servers that they started.
type withServers struct{ m *testing.M }

func (w withServers) Run() int { return pgtest.Main(w.m) }

// TestScripts runs the command line as a user does. Each script has a directory
// and a state directory of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: setup})
}

// TestPostgresScripts are those that need PostgreSQL. They know two more
// commands:
//
//	database NAME      put the URL of a new, empty database into the variable NAME
//	sql URL STATEMENT  run a statement in a database
func TestPostgresScripts(t *testing.T) {
	server := pgtest.Shared(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/postgres", Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"database": func(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv(args[0], server.Database(t)) },
			"sql": func(ts *testscript.TestScript, _ bool, args []string) {
				conn, err := pgx.Connect(t.Context(), args[0])
				ts.Check(err)
				defer conn.Close(context.Background())
				_, err = conn.Exec(t.Context(), args[1])
				ts.Check(err)
			},
		},
	})
}

func setup(env *testscript.Env) error {
	env.Setenv("XDG_STATE_HOME", env.WorkDir+"/state")
	env.Setenv("HOME", env.WorkDir)
	return nil
}

// TestOutsideServer: configuration and gateway mean the same name.
func TestOutsideServer(t *testing.T) {
	if config.OutsideServer != mcp.OutsideServer {
		t.Errorf("%q and %q", config.OutsideServer, mcp.OutsideServer)
	}
}
