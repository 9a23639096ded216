package pgtest

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// connect opens a connection that is closed with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// ask reads one value.
func ask[T any](t *testing.T, c *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestSettings(t *testing.T) {
	s := Start(t, Listen("127.0.0.2", 0), Set("max_connections", "20"))
	c := connect(t, s.Database(t, "application_name=here"))
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"max_connections": "20", "listen_addresses": "127.0.0.2", "application_name": "here",
		"server_encoding": "UTF8", "lc_collate": "C.UTF-8",
	} {
		if got := ask[string](t, c, "SHOW "+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := ask[bool](t, connect(t, s.SocketURL("postgres")), "SELECT inet_server_addr() IS NULL"); !got {
		t.Error("SocketURL leads to TCP")
	}
	if host, _, _ := net.SplitHostPort(s.Addr()); host != "127.0.0.2" {
		t.Errorf("Addr is %s", s.Addr())
	}
}

func TestShared(t *testing.T) {
	need(t)
	var url string
	t.Run("a test", func(t *testing.T) {
		url = Shared(t).Database(t)
		connect(t, url) // it is dropped all the same
	})
	_, err := pgx.Connect(t.Context(), url)
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("the database of a test that is over: %v", err)
	}
	a, b := Shared(t), Shared(t)
	if a.Addr() != b.Addr() {
		t.Errorf("two shared servers, %s and %s", a.Addr(), b.Addr())
	}
	if x, y := a.Database(t), b.Database(t); x == y {
		t.Errorf("one database for two: %s", x)
	}
}

func TestRemoved(t *testing.T) {
	need(t)
	var s *Server
	t.Run("a test", func(t *testing.T) { s = Start(t) })
	if left := working(s.data()); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestChild is what TestWatchdog kills.
func TestChild(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") == "" {
		t.Skip("run by TestWatchdog only")
	}
	s := Start(t)
	Shared(t)
	s.Pause() // paused processes are ended as well
	_, _ = os.Stdout.WriteString("base " + s.rig.base + "\n")
	time.Sleep(time.Minute)
}

func TestWatchdog(t *testing.T) {
	need(t)
	child := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	child.Env = append(os.Environ(), "PGTEST_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	base := ""
	for lines := bufio.NewScanner(out); base == "" && lines.Scan(); {
		base, _ = strings.CutPrefix(lines.Text(), "base ")
		if base == lines.Text() {
			base = ""
		}
	}
	servers := func() (n int) {
		for _, dir := range []string{"1", "2"} {
			if len(working(filepath.Join(base, dir, "data"))) > 0 {
				n++
			}
		}
		return n
	}
	if base == "" || servers() != 2 {
		t.Fatalf("the child in %q runs %d servers, want 2", base, servers())
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for end := time.Now().Add(10 * time.Second); servers() > 0 || exists(base); time.Sleep(look) {
		if time.Now().After(end) {
			t.Fatalf("%d servers outlived the process, the folder is there: %v", servers(), exists(base))
		}
	}
}
