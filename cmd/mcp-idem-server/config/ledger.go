package config

import (
	"net/url"
	"regexp"
	"strings"
)

// LedgerKind is the kind of store that keeps a ledger.
type LedgerKind string

const (
	LedgerBolt     LedgerKind = "bolt"     // one file
	LedgerPostgres LedgerKind = "postgres" // a schema in a database
)

// Ledger says where a ledger is. The zero value says nothing. However it is
// printed, it shows no password.
type Ledger struct {
	Kind LedgerKind
	Path string // LedgerBolt: of the file

	url  string // LedgerPostgres: with its password
	name string // LedgerPostgres: without
}

// BoltAt is the ledger in a file.
func BoltAt(path string) Ledger { return Ledger{Kind: LedgerBolt, Path: path} }

// ConnectionURL is the URL of a ledger in Postgres as it was given. It may hold
// a password: it is for connecting, never for a message.
func (l Ledger) ConnectionURL() string { return l.url }

// String is the place as people read it: the path, or the URL without its
// secrets.
func (l Ledger) String() string {
	if l.Kind == LedgerPostgres {
		return l.name
	}
	return l.Path
}

// GoString implements fmt.GoStringer.
func (l Ledger) GoString() string { return l.String() }

// MarshalText implements encoding.TextMarshaler.
func (l Ledger) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

const allowedLedgers = "want a path, bolt:///path or postgres://user@host/database"

// scheme is what a URL begins with; what follows the colon may be a mistake.
var (
	scheme      = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:`)
	keywordList = regexp.MustCompile(`(^|\s)(host|hostaddr|dbname|user|password|port|service)\s*=`)
)

// ParseLedger reads where the ledger is: a path, bolt:// and a path, or
// postgres:// (or postgresql://) and what libpq's URLs have. at is what an
// *Error names: a field, or a flag. No error shows more than the scheme, since
// the rest may hold a password.
func ParseLedger(at, text string) (Ledger, error) {
	name := strings.TrimSuffix(scheme.FindString(text), ":")
	rest := strings.TrimPrefix(text, name+":")
	path, slashes := strings.CutPrefix(rest, "//")
	switch kind := strings.ToLower(name); {
	case keywordList.MatchString(text):
		return Ledger{}, fail(at, "is a list of connection parameters; write it as postgres://user@host/database")
	case strings.TrimSpace(text) != text || strings.ContainsAny(text, `"'`):
		return Ledger{}, fail(at, "begins or ends with white space, or has quotes in it, as an environment file may leave them: write it without")
	case name == "" && strings.Contains(text, "://"):
		return Ledger{}, fail(at, "is neither a path nor a URL; %s", allowedLedgers)
	case name == "":
		return BoltAt(text), nil
	case !slashes:
		return Ledger{}, fail(at, "%s: has no // after it; %s (a path of that name is ./%s:…)", name, allowedLedgers, name)
	case kind == "postgres" || kind == "postgresql":
		return parsePostgres(at, kind+":"+rest)
	case kind != "bolt":
		return Ledger{}, fail(at, "%q is no kind of ledger; %s", name, allowedLedgers)
	case path == "":
		return Ledger{}, fail(at, "%q has no path", text)
	case strings.Contains(path, "@"):
		return Ledger{}, fail(at, "bolt: is a file on this machine, without user and host; %s", allowedLedgers)
	}
	return BoltAt(path), nil
}

func parsePostgres(at, text string) (Ledger, error) {
	u, err := url.Parse(text)
	// A / ? # or @ in a password ends the user's part early or late; the rest of
	// the password would be taken for something else, and shown.
	if err != nil || u.Fragment != "" || strings.Contains(u.EscapedPath()+u.RawQuery, "@") {
		return Ledger{}, fail(at, "is not a valid URL of a database: postgres://user@host/database; in a user or password, / ? # @ : %% are written %%2F %%3F %%23 %%40 %%3A %%25")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Ledger{}, fail(at, "the parameters of the URL cannot be read; %% is written %%25")
	}
	l := Ledger{Kind: LedgerPostgres, url: text}
	for name := range q {
		if strings.Contains(strings.ToLower(name), "pass") {
			q.Set(name, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	l.name = u.Redacted()
	if !strings.Contains(l.name, "://") { // nothing names a host
		l.name = strings.Replace(l.name, ":", "://", 1)
	}
	return l, nil
}
