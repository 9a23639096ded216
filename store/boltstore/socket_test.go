package boltstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	idem "github.com/mcp-idem/mcp-idem"
)

func mustDial(t testing.TB, path string) idem.Store {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// fakeHolder greets as a holder does and hands every further frame to fn.
func fakeHolder(t *testing.T, path string, fn func(net.Conn, call)) {
	t.Helper()
	l, err := listen(socketPath(path))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				r := bufio.NewReader(c)
				var h hello
				if readFrame(r, helloLimit, &h) != nil {
					return
				}
				if (&peer{c: c}).send(welcome{Version: wireVersion, Now: idem.InstantOf(time.Now())}) != nil {
					return
				}
				for {
					var q call
					if readFrame(r, frameLimit, &q) != nil {
						return
					}
					fn(c, q)
				}
			})
		}
	})
}

func TestSilentHolder(t *testing.T) {
	t.Parallel()
	path := tempPath(t)
	fakeHolder(t, path, func(net.Conn, call) {})
	c := mustDial(t, path)
	ctx := context.Background()
	ask := map[string]func() error{
		"Load":   func() error { _, err := c.Load(ctx, testRow(1).Ref); return err },
		"Commit": func() error { _, err := c.Commit(ctx, idem.Change{Puts: []idem.Row{testRow(1)}}); return err },
		"List":   func() error { _, err := c.List(ctx, idem.Query{}); return err },
		"Clock": func() error {
			time.Sleep(freshFor) // so long it is told from the welcome
			_, err := c.Clock(ctx)
			return err
		},
	}
	var wg sync.WaitGroup
	start := time.Now()
	for name, fn := range ask {
		wg.Go(func() {
			err := fn()
			if !errors.Is(err, ErrNoHolder) || errors.Is(err, idem.ErrCommitUnknown) != (name == "Commit") {
				t.Errorf("%s: error %v", name, err)
			}
		})
	}
	watching, cancel := context.WithTimeout(ctx, answerTime+500*time.Millisecond)
	defer cancel()
	if err := c.Watch(watching, testID(1), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch: error %v, it has to wait as long as its context", err)
	}
	wg.Wait()
	if took := time.Since(start); took > 2*answerTime {
		t.Errorf("it took %v", took)
	}
}

func TestHolderLostDuringCommit(t *testing.T) {
	path := tempPath(t)
	fakeHolder(t, path, func(c net.Conn, q call) { _ = c.Close() })
	c := mustDial(t, path)
	_, err := c.Commit(context.Background(), idem.Change{Puts: []idem.Row{testRow(1)}})
	if !errors.Is(err, idem.ErrCommitUnknown) || !errors.Is(err, ErrNoHolder) {
		t.Errorf("Commit: error %v", err)
	}
	// Before anything was sent, nothing can have been applied.
	if err := os.Remove(socketPath(path)); err != nil {
		t.Fatal(err)
	}
	_, err = c.Commit(context.Background(), idem.Change{Puts: []idem.Row{testRow(1)}})
	if errors.Is(err, idem.ErrCommitUnknown) || !errors.Is(err, ErrNoHolder) {
		t.Errorf("Commit without a holder: error %v", err)
	}
}

func TestClientReconnects(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	c := mustDial(t, path)
	mustPut(t, c, testRow(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(context.Background(), testRow(1).Ref); !errors.Is(err, ErrNoHolder) {
		t.Fatalf("without a holder: %v", err)
	}
	mustOpen(t, Config{Path: path})
	if snap, err := c.Load(context.Background(), testRow(1).Ref); err != nil || snap.Operation(testID(1)) == nil {
		t.Fatalf("with a new holder: %v", err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := tempPath(t)
	l, err := listen(socketPath(path))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // the file stays, as after a kill
	if _, err := Dial(path); !errors.Is(err, ErrNoHolder) {
		t.Fatalf("dial: error %v", err)
	}
	s := mustOpen(t, Config{Path: path})
	mustPut(t, mustDial(t, path), testRow(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socketPath(path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays after close: %v", err)
	}
}

func TestLongPath(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name", 12))
	path := filepath.Join(dir, "ledger.db")
	s := mustOpen(t, Config{Path: path})
	if sock := socketPath(s.Path()); len(sock) > sunPath || filepath.Dir(sock) != socketDir() {
		t.Fatalf("the socket is %s", sock)
	}
	mustPut(t, mustDial(t, path), testRow(1))

	// Where others could have put a socket, none is used.
	if err := os.Chmod(socketDir(), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(path); err == nil {
		t.Error("dialled in a directory that everybody may write to")
	}
	if err := os.Chmod(socketDir(), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestHandshake(t *testing.T) {
	path := tempPath(t)
	mustOpen(t, Config{Path: path})
	frame := func(v any) []byte {
		b, err := encodeFrame(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		send []byte
		says string // in a welcome; empty: the connection just ends
	}{
		"another version":  {frame(hello{Magic: wireMagic, Version: 99}), "speaks version 2, this program 99"},
		"another protocol": {frame(hello{Magic: "?", Version: wireVersion}), ""},
		"text":             {[]byte("GET / HTTP/1.1\r\n\r\n"), ""},
		"a huge frame":     {binary.BigEndian.AppendUint32(nil, 1<<31), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("unix", socketPath(path))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Write(tc.send); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			r := bufio.NewReader(c)
			if tc.says != "" {
				var w welcome
				if err := readFrame(r, helloLimit, &w); err != nil || !strings.Contains(w.Error, tc.says) {
					t.Fatalf("welcome %+v, error %v", w, err)
				}
			}
			if b, err := io.ReadAll(r); len(b) > 0 || (err != nil && os.IsTimeout(err)) {
				t.Fatalf("the connection stays: %q, %v", b, err)
			}
		})
	}
}

// TestManyOnOneConnection: calls overtake each other, watches come and go, and
// closing leaves nothing behind.
func TestManyOnOneConnection(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	c := mustDial(t, path)
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- c.Watch(ctx, testID(n), 0) }()
			short, stop := context.WithTimeout(ctx, time.Millisecond)
			_ = c.Watch(short, testID(1000+n), 0)
			stop()
			mustPut(t, c, testRow(n))
			if err := <-done; err != nil {
				t.Errorf("watch %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestFrameLimit(t *testing.T) {
	t.Run("answer", func(t *testing.T) {
		here, there := net.Pipe()
		defer func() { _ = here.Close() }()
		go (&peer{c: there}).answer(7, make([]byte, frameLimit), nil)
		var a response
		if err := readFrame(bufio.NewReader(here), frameLimit, &a); err != nil {
			t.Fatal(err)
		}
		if err := a.Error.in(); a.ID != 7 || err == nil || !strings.Contains(err.Error(), "limit") {
			t.Fatalf("answer to %d, error %v", a.ID, err)
		}
	})
	path := tempPath(t)
	s := mustOpen(t, Config{Path: path})
	t.Run("request", func(t *testing.T) {
		row := testRow(9)
		row.Operation.Result = make([]byte, frameLimit)
		_, err := mustDial(t, path).Commit(context.Background(), idem.Change{Puts: []idem.Row{row}})
		if err == nil || errors.Is(err, idem.ErrCommitUnknown) || !strings.Contains(err.Error(), "limit") {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("a listing ends its pages in time", func(t *testing.T) {
		row := testRow(0)
		row.Operation.Result = bytes.Repeat([]byte{1}, 3<<20)
		for n := range 4 {
			row.Ref = testRow(n).Ref
			mustPut(t, s, row)
		}
		var pages []int
		for q := (idem.Query{}); ; {
			p, err := s.List(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, len(p.Records))
			if q.After = p.Next; q.After == nil {
				break
			}
		}
		if len(pages) != 2 || pages[0] != 2 || pages[1] != 2 {
			t.Fatalf("pages of %v records", pages)
		}
	})
}
