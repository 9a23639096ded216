package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
)

// answering is the loop of a server in sh that answers everything.
const answering = `while read -r l; do id=${l#*\"id\":}; echo "{\"jsonrpc\":\"2.0\",\"id\":${id%%,*},\"result\":{}}"; done
`

// TestHalfARequest: a process that dies with a part of the request has surely
// ended with it.
func TestHalfARequest(t *testing.T) {
	r := script(t, "head -c 1000 >/dev/null\n")
	r.call("1", "echo", `{"a":"`+strings.Repeat("x", 1<<20)+`"}`, "")
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassAmbiguous || o.Ended != idem.EndByGroup {
		t.Errorf("%+v", o)
	}
	r.expect(`"id":1`, "OUTCOME_UNKNOWN")
}

// TestCutAnswer: the asker learns at once that the answer cannot be read; the
// attempt goes on until it is answered all the same, or its process has ended.
func TestCutAnswer(t *testing.T) {
	r := start(t, "", nil).handshake()
	r.call("1", "garbage", "{}", "")
	r.expect(`"id":1`, "OUTCOME_UNKNOWN")
	r.call("2", "garbage-then-good", "{}", "")
	r.expect(`"id":2`, "OUTCOME_UNKNOWN")
	if o := r.guard.ended(t, 1)[0]; o.Class != idem.ClassSuccess || o.Ended != idem.EndByAnswer {
		t.Errorf("a good answer behind a cut one: %+v", o)
	}
	_ = r.close()
	if o := r.guard.ended(t, 2)[1]; o.Class != idem.ClassAmbiguous || o.Ended != idem.EndByGroup {
		t.Errorf("a cut answer, and the end of the process: %+v", o)
	}
}

func small(c *Config) { c.Servers[0].lineLimit = 1 << 20 }

func TestLinesThatAreTooLong(t *testing.T) {
	r := start(t, "", stubPolicy{"peek": {Effect: "read"}}, small).handshake()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`)
	r.expect(`"id":null`, `-32600`, `1048576 bytes`)
	for i, tool := range []string{"long", "long-id-last"} {
		id := fmt.Sprint(2 + i)
		r.call(id, tool, "{}", "")
		r.expect(`"id":`+id, "OUTCOME_UNKNOWN")
	}
	r.call("4", "echo", "{}", "")
	r.expect(`"id":4`, `"done"`)

	r = start(t, "", stubPolicy{"long": {Effect: "read"}}, small).handshake()
	r.call("1", "long", "{}", "")
	r.expect(`"id":1`, "-32603", "too long")
}

func TestLineReaderSkips(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	for _, end := range []string{"\n", "\nlast", ""} {
		in := newLineReader(strings.NewReader("one\n"+long[:90<<10]+"\nA"+long+`,"id":7}`+end), 100<<10)
		if line, err := in.next(); string(line) != "one" || err != nil {
			t.Fatalf("%s, %v", line, err)
		}
		if line, err := in.next(); len(line) != 90<<10 || err != nil {
			t.Fatalf("%d bytes, %v", len(line), err)
		}
		line, err := in.next()
		if !errors.Is(err, errLong) || line[0] != 'A' || len(line) > lineBuffer || len(in.tail) > lineTail || !strings.HasSuffix(string(in.tail), `,"id":7}`) {
			t.Fatalf("%d bytes, %v, %q", len(line), err, in.tail)
		}
		if line, err := in.next(); !errors.Is(err, io.EOF) || string(line) != strings.TrimSpace(end) {
			t.Errorf("then %s, %v", line, err)
		}
	}
}

func TestLastID(t *testing.T) {
	for tail, want := range map[string]string{
		`"}]},"jsonrpc":"2.0","id":7}`:   "7",
		`"}]},"id":"7","jsonrpc":"2.0"}`: `"7"`,
		`"result":{"id":7}}`:             "",
		`\"id\":7}"}`:                    "",
	} {
		m := lastID.FindSubmatch([]byte(tail))
		if got := string(append(m, nil, nil)[1]); got != want {
			t.Errorf("%s: %s", tail, got)
		}
	}
}

func TestStandardErrorIsCut(t *testing.T) {
	in := bufio.NewScanner(strings.NewReader("a \r\n\r\n b\r" + strings.Repeat("\r", 1<<20) + "50%\r100%\n" + strings.Repeat("x", stderrLine+5) + "\nend"))
	in.Buffer(nil, stderrLine)
	in.Split(cutStderr)
	var got []string
	for in.Scan() {
		if text := in.Text(); len(text) > 10 {
			got = append(got, fmt.Sprint(len(text)))
		} else {
			got = append(got, text)
		}
	}
	if want := fmt.Sprint([]string{"a", "b", "50%", "100%", fmt.Sprint(stderrLine), "xxxxx", "end"}); fmt.Sprint(got) != want || in.Err() != nil {
		t.Errorf("%v, %v", got, in.Err())
	}
}

// ends waits for Serve.
func ends(t *testing.T, done <-chan error, limit time.Duration) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(limit):
		t.Fatalf("the gateway has not ended after %s", limit)
	}
}

// TestClientThatDoesNotRead ends its input and keeps its output open: the pipe
// is full and stays so.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	srv, log := server(t, "")
	guard := &stubGuard{done: map[string]idem.Outcome{}}
	g, err := NewGateway(Config{Guard: guard, Servers: []Server{srv}, Policy: stubPolicy{"hush": {Effect: "read"}, "silent": {Process: true}}, Drain: 100 * time.Millisecond, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	in, say := io.Pipe()
	stuck, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	defer out.Close()
	done := make(chan error, 1)
	go func() { done <- g.Serve(context.Background(), in, out) }()
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"silent"}}`)
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hush"}}`)
	r := &rig{t: t, log: log}
	r.waitSeen("call silent", 1)
	r.waitSeen("call hush", 1)
	fmt.Fprintln(say, `{"jsonrpc":"2.0","method":"flood"}`)
	time.Sleep(200 * time.Millisecond)
	_ = say.Close()
	ends(t, done, 12*time.Second)
	if o := guard.ended(t, 1)[0]; o.Class != idem.ClassAmbiguous || o.Ended != idem.EndByGroup {
		t.Errorf("%+v", o)
	}
	if guard.mu.Lock(); len(guard.lost) != 1 {
		t.Errorf("the guard was told of %d processes", len(guard.lost))
	}
	guard.mu.Unlock()
}

// TestProcessThatCannotBeEnded is let go of; what it was asked has an end that
// claims nothing.
func TestProcessThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	up := NewUpstream(Server{Name: "x"})
	hold, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	c := up.newPeer(zerolog.Nop())
	c.wire = &process{peer: c, proc: &proc.Child{Cmd: exec.Command("true")}, in: &lineWriter{w: in}, inFile: in, stderr: &tail{}, exited: make(chan struct{})}
	up.cur = c
	got := make(chan reply, 1)
	if _, err := c.send([]byte(`{"id":0}`), span{6, 7}, &pending{done: func(r reply) { got <- r }}); err != nil {
		t.Fatal(err)
	}
	c.stop(time.Millisecond)
	if r := <-got; r.ended || !errors.Is(r.err, errStuck) {
		t.Errorf("%+v", r)
	}
	if up.cur != nil {
		t.Error("the upstream has it still")
	}
}

// TestServerThatDoesNotRead blocks whoever writes to it, and nobody else.
func TestServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	t.Run("when the client has shaken hands", func(t *testing.T) {
		r := script(t, `read -r l; id=${l#*\"id\":}; echo "{\"jsonrpc\":\"2.0\",\"id\":${id%%,*},\"result\":{\"x\":\"fake\"}}"; exec sleep 100`)
		r.handshakeWith(strings.Repeat("x", 1<<20))
		closes(t, r.up)
	})
	t.Run("when it was started anew", func(t *testing.T) {
		r := script(t, `read -r l; id=${l#*\"id\":}; echo "{\"jsonrpc\":\"2.0\",\"id\":${id%%,*},\"result\":{\"x\":\"fake\"}}"; [ -e "$0.old" ] && exec sleep 100; touch "$0.old"; cat >/dev/null`)
		r.handshakeWith(strings.Repeat("x", 1<<20))
		old := r.up.live.Load()
		_ = old.wire.(*process).proc.Cmd.Process.Kill()
		<-old.gone
		_, _ = r.up.await(t.Context(), func() *peer { return r.up.cur })
		time.Sleep(300 * time.Millisecond)
		closes(t, r.up)
	})
	t.Run("and closes its input", func(t *testing.T) {
		r := script(t, `[ -e "$0.old" ] && { `+answering+` exit; }; touch "$0.old"; exec <&-; exec sleep 100`)
		time.Sleep(200 * time.Millisecond)
		r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		r.expect(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func (r *rig) handshakeWith(params string) {
	r.t.Helper()
	r.send(initLine)
	r.expect(`"id":"init"`, `"fake"`)
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized","params":{"x":"` + params + `"}}`)
	time.Sleep(200 * time.Millisecond)
}

func closes(t *testing.T, up *Upstream) {
	t.Helper()
	done := make(chan struct{})
	go func() { up.Close(); close(done) }()
	if !within(done, 8*time.Second) {
		t.Fatal("Close hangs")
	}
}

func TestNothingNewIsTakenWhileItDrains(t *testing.T) {
	t.Parallel()
	r := start(t, "", nil, func(c *Config) { c.Drain = 5 * time.Second }).handshake()
	r.call("1", "slow", "{}", "")
	r.waitSeen("call slow", 1)
	r.stop()
	time.Sleep(50 * time.Millisecond)
	r.call("2", "echo", "{}", "")
	r.expect(`"id":2`, "-32603", "ending")
	r.expect(`"id":1`, `"done"`)
	ends(t, r.done, 5*time.Second)
	if strings.Contains(r.seen(), "call echo") {
		t.Error("a call was sent")
	}

	for range 5 { // a client that goes on asking
		r := script(t, answering)
		go func() {
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(r.in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i); err != nil {
					return
				}
			}
		}()
		time.Sleep(50 * time.Millisecond)
		r.stop()
		ends(t, r.done, 8*time.Second)
		_ = r.in.Close()
	}
}
