// Package npm knows the unmodified servers in testdata/servers: how each is
// started on a directory, what a dangerous call to it looks like, how its
// unknown outcome is settled, and how to count effects in its own storage
// without asking it.
package npm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Server is one upstream from npm.
type Server struct {
	Name   string                             // in mcpServers
	entry  string                             // script, below node_modules
	args   func(dir string) []string          // command line
	env    func(dir string) map[string]string // environment
	seed   func(root, dir string) error       // what must be there first
	effect func(root, dir string) (int, error)

	Tool      string                          // the side effect
	Arguments func(dir string) map[string]any // of the call
	Query     map[string]any                  // the policy's reconcile, less its times
	ReadTool  string                          // what Query asks
}

// All are the four servers.
func All() []Server { return []Server{SQLite(), TaskManager(), Filesystem(), Memory()} }

// Root is where the servers are installed, seen from the package under test.
func Root(repository string) string { return filepath.Join(repository, "testdata", "servers") }

// Installed says what is missing and how to get it.
func Installed(root string) error {
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("%w: install Node.js 20 or newer", err)
	}
	if _, err := os.Stat(filepath.Join(root, "node_modules", ".installed")); err != nil {
		return fmt.Errorf("%w: run make servers", err)
	}
	return nil
}

// Prepare lays the storage that the server starts from.
func (s Server) Prepare(root, dir string) error {
	if s.seed == nil {
		return nil
	}
	return s.seed(root, dir)
}

// Command returns how to start the server, and its environment.
func (s Server) Command(root, dir string) ([]string, map[string]string) {
	argv := []string{"node", filepath.Join(root, "node_modules", filepath.FromSlash(s.entry))}
	if s.args != nil {
		argv = append(argv, s.args(dir)...)
	}
	env := map[string]string{}
	if s.env != nil {
		env = s.env(dir)
	}
	return argv, env
}

// Effects counts what the calls of Tool left in the server's storage.
func (s Server) Effects(root, dir string) (int, error) { return s.effect(root, dir) }

// Policy returns the policies for the server's tools. settle is how long after
// a proven end an empty answer proves absence.
func (s Server) Policy(settle string) []map[string]any {
	reconcile := map[string]any{"settle": settle, "every": "300ms"}
	for k, v := range s.Query {
		reconcile[k] = v
	}
	return []map[string]any{
		{"match": s.Name + "/" + s.ReadTool, "effect": "read"},
		{"match": s.Name + "/" + s.Tool, "reconcile": reconcile},
	}
}

// rows runs a statement on a SQLite file from outside.
func rows(root, db, sql string) ([]map[string]any, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("node", filepath.Join(root, "query.js"), db, sql)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", sql, err, stderr.Bytes())
	}
	var all []map[string]any
	return all, json.Unmarshal(out, &all)
}
