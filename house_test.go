package idem_test

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mcp-idem/mcp-idem"

// rooms says which rooms of the project a room may open into; the root is open
// to all, and what is below a room belongs to it. Reasons:
//   - the root is the protocol: nothing of it depends on a technology, so that
//     who imports it pulls no MCP, no langchaingo and no database;
//   - siblings do not know each other, so that each can be used, and left out,
//     alone;
//   - only the command and the examples see everything.
var rooms = map[string][]string{
	"":                    {"internal/crash"},
	"policy":              {},
	"checkpoint":          {},
	"reconcilers":         {"policy", "checkpoint"},
	"mcp":                 {"policy", "checkpoint", "internal/proc", "internal/crash"},
	"store/memstore":      {"internal/codec", "store/internal"},
	"store/boltstore":     {"internal/codec", "store/internal"},
	"store/pgstore":       {"internal/codec", "store/internal"},
	"store/storetest":     {"internal/codec"},
	"store/internal":      {"internal/codec"},
	"internal/codec":      {},
	"internal/crash":      nil, // and not the root either: the root imports it
	"internal/proc":       {},
	"internal/pgtest":     nil, // for tests; it knows nothing but PostgreSQL
	"cmd/mcp-idem-server": {"policy", "reconcilers", "mcp", "store", "checkpoint", "internal"},
}

// outside are the only modules that the root may use beside the standard
// library: a JSON tokenizer.
var outside = []string{"github.com/go-json-experiment/json/jsontext"}

func TestArrowsPointAtTheRoot(t *testing.T) {
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); dir != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(dir, 0)
		if err != nil { // no Go files
			return nil
		}
		room, ok := roomOf(filepath.ToSlash(dir))
		if !ok {
			t.Errorf("%s belongs to no room of the house: add it to the list, with what it may import", dir)
			return nil
		}
		for _, imp := range p.Imports {
			check(t, dir, room, imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func roomOf(dir string) (string, bool) {
	if dir == "." {
		return "", true
	}
	for room := range rooms {
		if room != "" && (dir == room || strings.HasPrefix(dir, room+"/")) {
			return room, true
		}
	}
	return "", false
}

func check(t *testing.T, dir, room, imp string) {
	to, ours := strings.CutPrefix(imp, module)
	to = strings.TrimPrefix(to, "/")
	switch {
	case !ours:
		if room == "" && strings.Contains(imp, ".") && !slices.Contains(outside, imp) {
			t.Errorf("%s imports %s: the root uses the standard library and a JSON tokenizer only", dir, imp)
		}
		return
	case to == "" && rooms[room] != nil:
		return
	case room != "" && (to == room || strings.HasPrefix(to, room+"/")):
		return
	}
	for _, ok := range rooms[room] {
		if to == ok || strings.HasPrefix(to, ok+"/") {
			return
		}
	}
	t.Errorf("%s imports %s: %q may open into the root and %v only", dir, imp, room, rooms[room])
}
