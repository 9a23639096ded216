package idem

// Hash is the request hash: a version byte and a SHA-256 over the canonical
// form of (tenant, tool, operation, arguments).
type Hash [33]byte
