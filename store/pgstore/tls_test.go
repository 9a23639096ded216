package pgstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/pgtest"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// certificate writes a certificate for 127.0.0.1, signed by itself, and its key,
// readable for the owner of dir.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ledger"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	must(err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	must(err)
	info, err := os.Stat(dir)
	must(err)
	owner, _ := info.Sys().(*syscall.Stat_t)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		must(os.Chown(path, int(owner.Uid), int(owner.Gid)))
		return path
	}
	return write("server.crt", "CERTIFICATE", der), write("server.key", "PRIVATE KEY", pkcs8)
}

// TestTLS: the server's certificate is checked, as the URL says.
func TestTLS(t *testing.T) {
	s := pgtest.Start(t)
	cert, key := certificate(t, filepath.Join(s.Dir(), "data"))
	for _, set := range []string{"ssl_cert_file = '" + cert + "'", "ssl_key_file = '" + key + "'", "ssl = on"} {
		conf, err := os.OpenFile(filepath.Join(s.Dir(), "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conf.WriteString("\n" + set + "\n"); err != nil {
			t.Fatal(err)
		}
		conf.Close()
	}
	s.Restart(pgtest.Fast)
	at := func(params string) string {
		u, err := url.Parse(s.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		u.RawQuery = params
		return u.String()
	}
	st := mustOpen(t, pgstore.Config{URL: at("sslmode=verify-full&sslrootcert=" + cert)})
	if _, err := st.Clock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pgstore.Open(t.Context(), pgstore.Config{URL: at("sslmode=verify-full"), Patience: time.Millisecond}); !errors.Is(err, pgstore.ErrUnreachable) {
		t.Errorf("a certificate that nobody vouches for: error %v", err)
	}
}
