package pgtest

import (
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// Server is a PostgreSQL that belongs to a test, or one that the tests of the
// process share. Its methods are safe for concurrent use; what cannot be done
// fails the test.
type Server struct {
	*cluster
	t       testing.TB
	shared  bool
	primary *Server // of a standby
}

// Option changes how [Start] starts a server.
type Option func(*cluster)

// Listen makes the server listen at an address of this machine instead of
// 127.0.0.1, and at a port; 0 chooses a free one.
func Listen(host string, port int) Option {
	return func(c *cluster) { c.host, c.port = host, port }
}

// Set sets a parameter of postgresql.conf, for as long as the server is there.
func Set(name, value string) Option {
	return func(c *cluster) { c.settings = append(c.settings, name+"="+value) }
}

// Start starts a server that only this test uses; it ends, and is removed, with
// the test. It has PostgreSQL's defaults, so fsync and synchronous_commit are
// on and there are 100 connections. A machine without PostgreSQL skips the
// test, and fails it when CI=true.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	r := need(t)
	c := &cluster{}
	for _, o := range opts {
		o(c)
	}
	return begin(t, c, r.create(c))
}

// begin starts a cluster that was made, and binds it to the test.
func begin(t testing.TB, c *cluster, err error) *Server {
	t.Helper()
	s := &Server{cluster: c, t: t}
	if err == nil {
		t.Cleanup(func() {
			if err := c.remove(); err != nil {
				t.Errorf("PostgreSQL on port %d: %v", c.port, err)
			}
		})
		s.showLog()
		err = c.start()
	}
	if err != nil {
		t.Fatalf("PostgreSQL: %v", err)
	}
	return s
}

// Shared returns the server that all tests of this process share. It is started
// when first asked for and ends with the process. It is not there to be killed:
// other tests may be at it.
func Shared(t testing.TB) *Server {
	t.Helper()
	c, err := need(t).shared()
	if err != nil {
		t.Fatalf("PostgreSQL: %v", err)
	}
	s := &Server{cluster: c, t: t, shared: true}
	s.showLog()
	return s
}

// Main runs the tests, ends what is left of the servers, and returns the code
// to exit with. Without it they end right after the process instead:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	process.Lock()
	defer process.Unlock()
	if process.rig != nil {
		_ = process.rig.close() // what the watchdog cannot end, nobody can
	}
	return code
}

// Addr is the host and port of the server.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// Port is the server's port; it stays the same when the server is restarted.
func (s *Server) Port() int { return s.port }

// Dir is the server's folder; the cluster is in its folder data, the log in its
// file log.
func (s *Server) Dir() string { return s.dir }

// URL names a database of the server, for its superuser, without TLS. Each
// param is one more parameter of the URL, name=value.
func (s *Server) URL(db string, params ...string) string { return s.url(db, params...) }

// SocketURL is like [Server.URL], through the server's Unix socket.
func (s *Server) SocketURL(db string, params ...string) string {
	return databaseURL("", db, append(params, "host="+s.dir, "port="+strconv.Itoa(s.port)))
}

func (c *cluster) url(db string, params ...string) string {
	return databaseURL(net.JoinHostPort(c.host, strconv.Itoa(c.port)), db, append(params, "sslmode=disable"))
}

func databaseURL(addr, db string, params []string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/" + db}
	q := url.Values{}
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}
