package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/memstore"
)

// door is a client at one of the gateway's fronts, before the server of serveActs
// and a ledger in memory.
type door struct {
	t         *testing.T
	name      string
	stateless bool
	rig       *rig     // over stdio
	visitor   *visitor // over HTTP
	again     func() *door
	store     *memstore.Store
	log       string
}

// eachDoor runs f at every front and in both eras. What f does there has to have
// names of its own: all of one door's cases have one ledger and one server's log.
func eachDoor(t *testing.T, tools []policy.Tool, f func(*testing.T, *door)) {
	for _, stateless := range []bool{false, true} {
		for _, front := range []string{"stdio", "HTTP"} {
			name := front
			if stateless {
				name += ", stateless"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, openDoor(t, name, front == "HTTP", stateless, tools))
			})
		}
	}
}

// openDoor opens one; servers are instead of that of serveActs.
func openDoor(t *testing.T, name string, web, stateless bool, tools []policy.Tool, servers ...Server) *door {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	system, err := proc.New()
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.New(policy.Config{Servers: []string{"fake"}, Tools: tools, ResultLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{t: t, name: name, stateless: stateless, store: memstore.New(memstore.Config{}), log: filepath.Join(t.TempDir(), "log")}
	guard, err := idem.New(idem.Config{Store: d.store, Policy: set, Owner: system.Self(), Processes: system})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = guard.Close(ctx)
	})
	srv := Server{Name: "fake", Command: self, Env: []string{fakeMode + "=acts", "FAKE_LOG=" + d.log, "GORACE=atexit_sleep_ms=0"}, Log: testLog(t)}
	if len(servers) > 0 {
		srv = servers[0]
	}
	change := func(c *Config) {
		c.Guard, c.Policy, c.Servers, c.Identity = guard, PolicyOf(set), []Server{srv}, DefaultIdentity()
	}
	if web {
		w := startFront(t, "", HTTPConfig{}, change)
		d.again = func() *door {
			n := *d
			n.visitor = w.visitor()
			if !stateless {
				n.visitor.handshake()
			}
			return &n
		}
	} else {
		d.again = func() *door {
			n := *d
			n.rig = startServer(t, srv, d.log, nil, change)
			if !stateless {
				n.rig.handshake()
			}
			return &n
		}
	}
	return d.again()
}

// request is one that is under way.
type request struct {
	d     *door
	id    string
	end   context.CancelFunc
	reply chan string
}

// ask sends a call. more are further members of its params; meta of its _meta.
func (d *door) ask(id, tool, args, meta, more string) *request {
	d.t.Helper()
	if d.stateless {
		meta = strings.TrimPrefix(meta+","+helloMeta, ",")
	}
	if more != "" {
		more = "," + more
	}
	return d.send(id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}%s}}`, id, tool, args, meta, more))
}

func (d *door) send(id, line string) *request {
	d.t.Helper()
	r := &request{d: d, id: id}
	if d.rig != nil {
		r.end = func() { _ = d.rig.in.Close() }
		d.rig.send(line)
		return r
	}
	var ctx context.Context
	ctx, r.end = context.WithCancel(d.t.Context())
	r.reply = make(chan string, 1)
	go func() {
		defer close(r.reply)
		resp, err := d.visitor.request(ctx, http.MethodPost, line)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err == nil {
			r.reply <- string(b)
		}
	}()
	return r
}

// answer is the answer's line, which must hold every part.
func (r *request) answer(parts ...string) string {
	r.d.t.Helper()
	if r.d.rig != nil {
		got := r.d.rig.expect(`"id":` + r.id + `,`)
		r.check(got, parts)
		return got
	}
	select {
	case body := <-r.reply:
		for line := range strings.Lines(body) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
			if strings.Contains(line, `"id":`+r.id+`,`) {
				r.check(line, parts)
				return line
			}
		}
		r.d.t.Fatalf("no answer to %s in %.1000s", r.id, body)
	case <-time.After(10 * time.Second):
		r.d.t.Fatalf("no answer to %s; the server saw:\n%s", r.id, r.d.seen())
	}
	return ""
}

func (r *request) check(got string, parts []string) {
	r.d.t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			r.d.t.Errorf("no %s in %.1000s", p, got)
		}
	}
}

// unanswered wants that the request was never answered.
func (r *request) unanswered() {
	r.d.t.Helper()
	got := ""
	if r.d.rig != nil {
		r.d.rig.mu.Lock()
		for _, line := range r.d.rig.lines {
			got += string(line) + "\n"
		}
		r.d.rig.mu.Unlock()
	} else {
		select {
		case got = <-r.reply:
		case <-time.After(10 * time.Second):
			r.d.t.Fatalf("the request %s does not end", r.id)
		}
	}
	if strings.Contains(got, `"id":`+r.id+`,`) {
		r.d.t.Errorf("it was answered: %s", got)
	}
}

// leave goes away without a word: this client ends, or over HTTP the request.
func (r *request) leave() { r.end() }

// say sends a notification.
func (d *door) say(line string) {
	d.t.Helper()
	if d.rig != nil {
		d.rig.send(line)
		return
	}
	d.visitor.wants(http.StatusAccepted, http.MethodPost, line)
}

func (d *door) seen() string { return (&rig{t: d.t, log: d.log}).seen() }

// reached waits until a call of these arguments has reached the server.
func (d *door) reached(args string) {
	d.t.Helper()
	(&rig{t: d.t, log: d.log}).waitSeen(" "+args+"\n", 1)
}

// wantCalls checks how often calls of these arguments have.
func (d *door) wantCalls(args string, n int) {
	d.t.Helper()
	if got := strings.Count(d.seen(), " "+args+"\n"); got != n {
		d.t.Errorf("%d calls of %s, want %d:\n%s", got, args, n, d.seen())
	}
}

// open lets calls of a tool that waits go on, whose argument n is name.
func (d *door) open(name string) {
	d.t.Helper()
	if err := os.WriteFile(d.log+"."+name, nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// wantState waits until the task's only operation is in a state.
func (d *door) wantState(task string, want idem.State) {
	d.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all := d.records(task)
		if len(all) == 1 && all[0].State == want {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("%d operations of %s, want one that is %s: %+v", len(all), task, want, all)
		}
	}
}

func (d *door) records(task string) []*idem.Record {
	d.t.Helper()
	page, err := d.store.List(context.Background(), idem.Query{Order: idem.ByTask, Tenant: "default", Task: task})
	if err != nil {
		d.t.Fatal(err)
	}
	return page.Records
}
