package idem

// Hash is the request hash: a version byte and a SHA-256 over the canonical
// form of (tenant, tool, operation, arguments).
type Hash [33]byte

// Selection says which members of the arguments count.
type Selection struct {
	Only   []Path // empty: all
	Except []Path
}

// HashRequest hashes a request from the raw bytes of its arguments; nil means
// no arguments, which is not the same as {}. The error names the place and is
// INVALID_ARGUMENTS.
func HashRequest(s Scope, args []byte, sel Selection) (Hash, error) { return Hash{}, nil }

// Canonical returns the canonical form of one JSON value: what the hash is
// made of, and what values of plain paths are compared by.
func Canonical(value []byte) ([]byte, error) { return nil, nil }

// Find returns the raw bytes of the member at a path; ok is false when there is
// none.
func Find(args []byte, p Path) (value []byte, ok bool, err error) { return nil, false, nil }
