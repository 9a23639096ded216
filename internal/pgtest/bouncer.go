package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bouncer is a PgBouncer in front of a server. It pools transactions: each may
// run in another session, so that LISTEN, session settings, advisory locks of a
// session and prepared statements do not work.
type Bouncer struct {
	t    testing.TB
	addr string
}

// Bouncer starts a PgBouncer that pools up to size sessions of each database,
// for as long as the test runs. Without the program the test is skipped, or
// fails when CI=true.
func (s *Server) Bouncer(t testing.TB, size int) *Bouncer {
	t.Helper()
	return s.bouncer(t, s.host, s.port, size)
}

// BouncerBehind is Bouncer with a proxy of the same server between the two.
func (s *Server) BouncerBehind(t testing.TB, p *Proxy, size int) *Bouncer {
	t.Helper()
	host, text, err := net.SplitHostPort(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return s.bouncer(t, host, port, size)
}

func (s *Server) bouncer(t testing.TB, host string, port, size int) *Bouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // not on everybody's PATH
	}
	if !exists(program) {
		missing(t, errors.New("PgBouncer is missing: install it (Debian: apt-get install pgbouncer)"))
	}
	b := &Bouncer{t: t}
	if err := b.start(s, host, port, program, size); err != nil {
		t.Fatalf("PgBouncer: %v", err)
	}
	return b
}

// Addr is the host and port that clients connect to.
func (b *Bouncer) Addr() string { return b.addr }

// URL names a database of the server behind it, as [Server.URL] does.
func (b *Bouncer) URL(db string, params ...string) string {
	return databaseURL(b.addr, db, append(params, "sslmode=disable"))
}

// Through turns a URL of the server into one that leads through the bouncer.
func (b *Bouncer) Through(serverURL string) string {
	b.t.Helper()
	return through(b.t, serverURL, b.addr)
}

const bouncerConfig = `[databases]
* = host=%s port=%d user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`

func (b *Bouncer) start(s *Server, host string, serverPort int, program string, size int) error {
	dir, err := s.rig.folder()
	if err != nil {
		return err
	}
	port, reserved, err := reserve("127.0.0.1")
	if err != nil {
		return err
	}
	b.t.Cleanup(func() { _ = reserved.Close() })
	b.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	config := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(config, fmt.Appendf(nil, bouncerConfig, host, serverPort, port, size), 0o644); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.rig.command(dir, program, config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	b.t.Cleanup(func() {
		if b.t.Failed() {
			said, _ := os.ReadFile(log.Name())
			b.t.Logf("the log of PgBouncer:\n%s", said)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if err := os.RemoveAll(dir); err != nil {
			b.t.Errorf("PgBouncer: %v", err)
		}
	})
	return b.ready()
}

// ready waits until a connection is served.
func (b *Bouncer) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, b.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(look):
		}
	}
}
