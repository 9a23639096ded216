package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

// partner is a server as a client sees it: two pipes.
type partner struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// open runs this test binary in a mode and shakes hands with it.
func openPeer(b *testing.B, mode string) *partner {
	b.Helper()
	cmd, in, out := self(b, fakeMode+"="+mode)
	p := &partner{in: in, out: bufio.NewReaderSize(out, 1<<16), cmd: cmd}
	p.trip(b, initLine+"\n")
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		b.Fatal(err)
	}
	return p
}

// self runs this test binary with more environment until the benchmark ends.
func self(b *testing.B, env ...string) (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser) {
	b.Helper()
	path, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd = exec.Command(path)
	cmd.Env = append(os.Environ(), env...)
	if in, err = cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return cmd, in, out
}

func (p *partner) trip(b *testing.B, line string) time.Duration {
	start := time.Now()
	if _, err := io.WriteString(p.in, line); err != nil {
		b.Fatal(err)
	}
	answer, err := p.out.ReadSlice('\n')
	if err != nil || len(answer) < 2 {
		b.Fatal(err)
	}
	return time.Since(start)
}

// BenchmarkUnguarded measures a call of a tool that only reads, directly and
// through a gateway in a process of its own, in turns, and reports the ratio of
// the medians.
func BenchmarkUnguarded(b *testing.B) {
	direct, through, copied := openPeer(b, "on"), openPeer(b, "gateway"), openPeer(b, "copier")
	line := `{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"peek","arguments":{"path":"` + strings.Repeat("x", 200) + `"},"_meta":{"progressToken":1}}}` + "\n"
	for range 200 {
		direct.trip(b, line)
		through.trip(b, line)
		copied.trip(b, line)
	}
	var d, g, c []time.Duration
	for b.Loop() {
		d = append(d, direct.trip(b, line))
		g = append(g, through.trip(b, line))
		c = append(c, copied.trip(b, line))
	}
	median := func(all []time.Duration) float64 { slices.Sort(all); return float64(all[len(all)/2]) }
	b.ReportMetric(median(d)/1e3, "direct-µs")
	b.ReportMetric(median(g)/1e3, "gateway-µs")
	b.ReportMetric(median(g)/median(d), "ratio")
	b.ReportMetric(median(c)/median(d), "copier-ratio")
}

// BenchmarkGuarded measures a guarded call through a gateway with a ledger, in
// turns with one that is not guarded and with two bare commits on the same disk,
// and reports guarded / (unguarded + two commits): at most 1 is the aim.
func BenchmarkGuarded(b *testing.B) {
	dir := b.TempDir()
	b.Setenv(benchDir, dir)
	p := openPeer(b, "guarded")
	db, err := bbolt.Open(filepath.Join(dir, "bare.db"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	row := make([]byte, 600)
	commit := func(key []byte) {
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("rows"))
			if err != nil {
				return err
			}
			return bucket.Put(key, row)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	call := func(tool string, i int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"path":"%0200d"},"_meta":{"mcp-idem/task":"t%d","mcp-idem/step":"s"}}}`, i+1, tool, i, i) + "\n"
	}
	var guarded, unguarded, bare []time.Duration
	for i := 0; b.Loop(); i++ {
		guarded = append(guarded, p.trip(b, call("echo", i)))
		unguarded = append(unguarded, p.trip(b, call("peek", i)))
		start := time.Now()
		commit(fmt.Appendf(nil, "%d", i))
		commit(fmt.Appendf(nil, "%d", i))
		bare = append(bare, time.Since(start))
	}
	median := func(all []time.Duration) float64 { slices.Sort(all); return float64(all[len(all)/2]) }
	b.ReportMetric(median(guarded)/1e3, "guarded-µs")
	b.ReportMetric(median(unguarded)/1e3, "unguarded-µs")
	b.ReportMetric(median(bare)/1e3, "two-commits-µs")
	b.ReportMetric(median(guarded)/(median(unguarded)+median(bare)), "ratio")
}

// benchDir names the variable that says where the guarded gateway's ledger is.
const benchDir = "MCP_BENCH_DIR"

// serveGuarded is a gateway with a ledger of its own.
func serveGuarded() {
	self, _ := os.Executable()
	st, err := boltstore.Open(boltstore.Config{Path: filepath.Join(os.Getenv(benchDir), "ledger.db"), NoSocket: true})
	if err != nil {
		os.Exit(1)
	}
	system, err := proc.New()
	if err != nil {
		os.Exit(1)
	}
	set, err := policy.New(policy.Config{Servers: []string{"fake"}})
	if err != nil {
		os.Exit(1)
	}
	guard, err := idem.New(idem.Config{Store: st, Policy: set, Owner: system.Self(), Processes: system})
	if err != nil {
		os.Exit(1)
	}
	srv := Server{Name: "fake", Command: self, Env: []string{fakeMode + "=on"}}
	g, err := NewGateway(Config{Guard: guard, Servers: []Server{srv}, Policy: stubPolicy{"peek": {Effect: policy.EffectRead}}})
	if err != nil || g.Serve(context.Background(), os.Stdin, os.Stdout) != nil {
		os.Exit(1)
	}
}

// serveGateway is a gateway in front of this binary as a server.
func serveGateway() {
	self, _ := os.Executable()
	srv := Server{Name: "fake", Command: self, Env: []string{fakeMode + "=on"}}
	g, err := NewGateway(Config{Guard: &stubGuard{done: map[string]idem.Outcome{}}, Servers: []Server{srv}, Policy: stubPolicy{"peek": {Effect: policy.EffectRead}}})
	if err == nil {
		err = g.Serve(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		os.Exit(1)
	}
}

// BenchmarkList measures a list of 1,000 tools of an mcp-go server, directly and through a gateway
// that adds its own to it, in turns, and reports the ratio of the medians: at
// most 1.5 is the aim.
func BenchmarkList(b *testing.B) {
	direct, through := openPeer(b, "listed"), openPeer(b, "lister")
	line := `{"jsonrpc":"2.0","id":12,"method":"tools/list","params":{}}` + "\n"
	trip := func(p *partner) time.Duration {
		start := time.Now()
		if _, err := io.WriteString(p.in, line); err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			part, err := p.out.ReadSlice('\n')
			n += len(part)
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				b.Fatal(err)
			}
		}
		if n < manyTools*200 {
			b.Fatalf("a list of %d bytes", n)
		}
		return time.Since(start)
	}
	for range 20 {
		trip(direct)
		trip(through)
	}
	var d, g []time.Duration
	for b.Loop() {
		d = append(d, trip(direct))
		g = append(g, trip(through))
	}
	median := func(all []time.Duration) float64 { slices.Sort(all); return float64(all[len(all)/2]) }
	b.ReportMetric(median(d)/1e3, "direct-µs")
	b.ReportMetric(median(g)/1e3, "gateway-µs")
	b.ReportMetric(median(g)/median(d), "ratio")
}

// serveLister is a gateway with a tool of its own in front of the corpus.
func serveLister() {
	self, _ := os.Executable()
	srv := Server{Name: "fake", Command: self, Env: []string{fakeMode + "=listed"}}
	g, err := NewGateway(Config{Guard: &stubGuard{done: map[string]idem.Outcome{}}, Servers: []Server{srv}, Policy: stubPolicy{}, Control: &stubControl{}})
	if err != nil || g.Serve(context.Background(), os.Stdin, os.Stdout) != nil {
		os.Exit(1)
	}
}

// serveCopier copies bytes and looks at nothing.
func serveCopier() {
	self, _ := os.Executable()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fakeMode+"=on")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
	go func() {
		copyBytes(in, os.Stdin)
		_ = in.Close()
	}()
	copyBytes(os.Stdout, out)
	_ = cmd.Wait()
}

func copyBytes(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		_, _ = to.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// BenchmarkEnvelope is what the gateway itself does to a message that passes
// through.
func BenchmarkEnvelope(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"peek","arguments":{"path":"` + strings.Repeat("x", 200) + `"},"_meta":{"progressToken":1}}}`)
	out := &lineWriter{w: io.Discard}
	var p parser
	b.ReportAllocs()
	for b.Loop() {
		e, err := p.parse(line)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := toolName(e.params.of(line)); err != nil {
			b.Fatal(err)
		}
		if _, err := out.write(line[:e.id.from], []byte("7"), line[e.id.to:]); err != nil {
			b.Fatal(err)
		}
	}
}
