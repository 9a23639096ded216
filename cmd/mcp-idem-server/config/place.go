package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// NameFor is the name of a server that was given as a command: the command's
// base name and a short hash of command, arguments and working directory, so
// that the same server has the same operations next time.
func NameFor(command string, args []string, dir string) string {
	h := sha256.New()
	for _, part := range append([]string{command, dir}, args...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	base := strings.TrimSuffix(filepath.Base(command), ".exe")
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == 0x7f {
			return '_'
		}
		return r
	}, base) + "-" + hex.EncodeToString(h.Sum(nil))[:8]
}

// OutsideServer is no server's name: the gateway uses it for effects that agents
// tell of.
const OutsideServer = "outside"

// checkName: the name is the part of a tool's full name before the first slash.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a server needs a name")
	case name == OutsideServer:
		return fmt.Errorf("%q is taken: it stands for effects that agents have by themselves and tell of", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == '*' || r == 0x7f }):
		return errors.New("a server's name may hold no slash, star or white space")
	}
	return nil
}
