package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// oldest is the oldest major version that is tested.
const oldest = 15

// binaries returns the folder with the programs of a PostgreSQL that is new
// enough: the one on PATH, else the newest of Debian's, else what pg_config
// names.
func binaries() (string, error) {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(debian, func(a, b string) int { return version(b) - version(a) })
	dirs = append(dirs, debian...)
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	found := ""
	for _, dir := range dirs {
		v := version(dir)
		if v >= oldest {
			return dir, nil
		}
		found += fmt.Sprintf(" (%s has version %d)", dir, v)
	}
	return "", fmt.Errorf("PostgreSQL %d or newer is missing%s: install it (Debian: apt-get install postgresql) or put its programs on PATH", oldest, found)
}

var versionRE = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// version is the major version of the server in dir, 0 when it has none or
// when it lacks a program that tests run.
func version(dir string) int {
	for _, program := range []string{"initdb", "pg_basebackup"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return 0
		}
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	m := versionRE.FindSubmatch(out)
	if m == nil {
		return 0
	}
	v, _ := strconv.Atoi(string(m[1]))
	return v
}

// missing ends a test that lacks something of this machine: it fails in CI and
// is skipped elsewhere, with the same words.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}
