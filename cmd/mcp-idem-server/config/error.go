package config

import (
	"fmt"
	"slices"
	"strings"
)

// Error is a mistake in a configuration.
type Error struct {
	File string // empty: it is not from a file
	Path string // in the file, like policies[0].wait; empty: the whole
	Text string // what is wrong, and what is allowed
}

func (e *Error) Error() string {
	var parts []string
	for _, p := range []string{e.File, e.Path, e.Text} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

func fail(path, format string, args ...any) *Error {
	return &Error{Path: path, Text: fmt.Sprintf(format, args...)}
}

// later is the error of what the file format has and this version has not.
func later(path, what string) *Error {
	return fail(path, "%s is not supported yet by this version", what)
}

// oneOf checks a value against the allowed ones; empty is "not given".
func oneOf[T ~string](path string, value T, allowed ...T) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fail(path, "%q is not one of %s", string(value), list(allowed))
}

func list[T ~string](values []T) string {
	var q []string
	for _, v := range values {
		q = append(q, string(v))
	}
	return strings.Join(q, ", ")
}

// nearest returns the allowed name that is most likely meant; empty: none is
// near.
func nearest(name string, allowed []string) string {
	best, at := "", len(name)/2+1
	for _, a := range allowed {
		if d := distance(strings.ToLower(name), strings.ToLower(a)); d < at {
			best, at = a, d
		}
	}
	return best
}

// distance is how many letters to change, add or drop to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
