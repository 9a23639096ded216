package pgstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	// nameMax bounds a name in a column: an index takes no more than a third of a
	// page.
	nameMax = 240
	// namePrefix is how much of a longer one stays readable.
	namePrefix = 40
)

// name is how a column holds a text by which operations are found. The record
// has the text itself. Texts come from outside and may hold what the database's
// encoding cannot, no text of PostgreSQL can (a zero byte, broken UTF-8) or no
// index takes (several kilobytes), so what is not plain is escaped as in a Go
// string, and what is long ends with a digest of the whole. Different texts have
// different names.
func name(text string) string {
	if plain(text) {
		return text
	}
	if n := escaped(text); len(n) <= nameMax {
		return n
	}
	digest := sha256.Sum256([]byte(text))
	return escaped(text[:min(len(text), namePrefix)]) + `\#` + hex.EncodeToString(digest[:]) // no escape begins like this
}

// plain reports whether a text needs no escapes and is short.
func plain(text string) bool {
	if len(text) > nameMax {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func escaped(text string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strconv.QuoteToASCII(text), `"`), `"`)
}
