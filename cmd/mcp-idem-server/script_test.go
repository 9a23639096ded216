package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"mcp-idem-server": main})
}

// TestScripts runs the command line as a user does. Each script has a directory
// and a state directory of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_STATE_HOME", env.WorkDir+"/state")
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
	})
}
