package policy

import (
	"errors"
	"strings"
)

// checkGlob refuses patterns that could match no tool.
func checkGlob(pattern string) error {
	switch {
	case pattern == "":
		return errors.New("an empty pattern matches nothing; write server/tool, server/* or **")
	case !strings.Contains(pattern, "/") && !strings.Contains(pattern, "**"):
		return errors.New("the pattern names no tool; write server/tool, server/* or **")
	}
	return nil
}

// match reports whether a tool's full name fits a pattern: * stands for any
// characters but a slash, ** for any at all.
func match(pattern, name string) bool {
	for pattern != "" {
		if pattern[0] != '*' {
			if name == "" || name[0] != pattern[0] {
				return false
			}
			pattern, name = pattern[1:], name[1:]
			continue
		}
		rest := strings.TrimLeft(pattern, "*")
		deep := len(pattern)-len(rest) > 1
		for i := 0; ; i++ {
			if match(rest, name[i:]) {
				return true
			}
			if i == len(name) || (!deep && name[i] == '/') {
				return false
			}
		}
	}
	return name == ""
}

// reaches reports whether a pattern matches some name that begins with a
// prefix.
func reaches(pattern, prefix string) bool {
	for prefix != "" {
		if pattern == "" {
			return false
		}
		if pattern[0] != '*' {
			if pattern[0] != prefix[0] {
				return false
			}
			pattern, prefix = pattern[1:], prefix[1:]
			continue
		}
		rest := strings.TrimLeft(pattern, "*")
		deep := len(pattern)-len(rest) > 1
		for i := 0; ; i++ {
			if reaches(rest, prefix[i:]) {
				return true
			}
			if i == len(prefix) || (!deep && prefix[i] == '/') {
				return false
			}
		}
	}
	return true
}
