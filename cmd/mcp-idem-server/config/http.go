package config

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HTTPServer is how clients are served over HTTP. All but Listen is as given
// in the file or its default, also where the file says nothing of HTTP.
type HTTPServer struct {
	Given  bool     // the file has something to say about it
	Listen string   // HOST:PORT
	Tokens []Bearer // nil: no token is asked for
	// AllowedOrigins are origins (scheme://host or scheme://host:port, in lower
	// case) that browsers may call from, beside loopback.
	AllowedOrigins []string
	// AllowedHosts are names (with or without port, in lower case) by which
	// clients may call this server, beside loopback and Listen.
	AllowedHosts []string
	MaxBody      int64 // bytes
	SessionIdle  time.Duration
	TLSCert      string // a PEM file; with TLSKey, or both are empty
	TLSKey       string
}

// Bearer is who holds a token. Two tokens with one tenant and name belong to
// one bearer, so that a token can be replaced while the old one still works.
type Bearer struct {
	SHA256 [sha256.Size]byte // of the token
	Tenant string
	Name   string // never empty
}

// Principal is the bearer as one word that no other has.
func (b *Bearer) Principal() string { return strconv.Quote(b.Tenant) + "/" + b.Name }

// Defaults of serving over HTTP.
const (
	DefaultListen      = "127.0.0.1:8787"
	defaultMaxBody     = 16 << 20
	defaultSessionIdle = 30 * time.Minute
)

func (c *Config) serve(f *File) error {
	g, h := f.HTTP, &c.HTTP
	*h = HTTPServer{Given: !reflect.ValueOf(g).IsZero(), Listen: or(g.Listen, DefaultListen), MaxBody: defaultMaxBody, SessionIdle: g.SessionIdle.or(defaultSessionIdle), TLSCert: g.TLSCert, TLSKey: g.TLSKey}
	if g.MaxBody != nil {
		h.MaxBody = int64(*g.MaxBody)
	}
	switch err := CheckListen(h.Listen); {
	case err != nil:
		return fail("http.listen", "%v", err)
	case h.MaxBody == 0:
		return fail("http.max_body", "must be more than 0B")
	case h.SessionIdle == 0:
		return fail("http.session_idle", "must be more than 0s")
	case (h.TLSCert == "") != (h.TLSKey == ""):
		return fail("http", "tls_cert and tls_key go together")
	}
	for i, text := range g.AllowedOrigins {
		o, err := url.Parse(text)
		if err != nil || o.Scheme == "" || o.Host == "" || o.User != nil || o.Path != "" || o.RawQuery != "" || o.Fragment != "" {
			return fail(index("http.allowed_origins", i), "%q is no origin; write it like https://app.example.com, without a path", text)
		}
		h.AllowedOrigins = append(h.AllowedOrigins, strings.ToLower(text))
	}
	for i, text := range g.AllowedHosts {
		if text == "" || strings.ContainsAny(text, "/*@ \t") {
			return fail(index("http.allowed_hosts", i), "%q is no host; write it like mcp.example.com or mcp.example.com:8443", text)
		}
		h.AllowedHosts = append(h.AllowedHosts, strings.ToLower(text))
	}
	if g.Tokens != nil && len(g.Tokens) == 0 {
		return fail("http.tokens", "is empty, which would let nobody in; leave it out to ask for no token")
	}
	return c.tokens(g.Tokens)
}

func (c *Config) tokens(given []Token) error {
	for i, t := range given {
		at := index("http.tokens", i)
		raw, err := hex.DecodeString(t.SHA256)
		if err != nil || len(raw) != sha256.Size {
			return fail(at+".sha256", "is not the SHA-256 of a token in 64 hex digits; make one with: printf %%s \"$TOKEN\" | sha256sum")
		}
		b := Bearer{SHA256: [sha256.Size]byte(raw), Tenant: or(t.Tenant, c.Tenant), Name: or(t.Name, hex.EncodeToString(raw[:4]))}
		if slices.ContainsFunc(c.HTTP.Tokens, func(o Bearer) bool { return o.SHA256 == b.SHA256 }) {
			return fail(at+".sha256", "comes twice")
		}
		c.HTTP.Tokens = append(c.HTTP.Tokens, b)
	}
	return nil
}

// CheckListen says what is wrong with an address to listen at; nil: nothing.
func CheckListen(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, "/@ ") {
		return fail("", "%q is no address to listen at; write it like %s, or :8787 for every interface", addr, DefaultListen)
	}
	return nil
}
