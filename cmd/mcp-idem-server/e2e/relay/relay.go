package relay

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Main runs a relay: -control DIR [-linger] -- COMMAND ARGS. It returns the
// exit status. With -linger the end of standard input is kept from the server,
// which therefore outlives a gateway that was killed, as a server does that is
// busy at that moment.
func Main(args []string) int {
	fs := flag.NewFlagSet("relay", flag.ContinueOnError)
	dir := fs.String("control", "", "directory of the control files")
	linger := fs.Bool("linger", false, "outlive the gateway")
	if fs.Parse(args) != nil || *dir == "" || fs.NArg() == 0 {
		return 2
	}
	r := &relay{ctl: Control{*dir}, linger: *linger, tools: map[string]string{}}
	if err := r.run(fs.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return 1
	}
	return 0
}

type relay struct {
	ctl    Control
	linger bool

	mu    sync.Mutex
	tools map[string]string // tool by request id, of calls under way

	out sync.Mutex // standard output, whole lines
}

// message is what the relay reads of a line.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string `json:"name"`
	} `json:"params"`
}

func (r *relay) run(command []string) error {
	signal.Ignore(syscall.SIGPIPE) // a dead gateway must not take a lingering relay along
	server := exec.Command(command[0], command[1:]...)
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	if err := r.ctl.report(Event{What: Started, Parent: os.Getppid(), Server: server.Process.Pid}); err != nil {
		return err
	}
	go r.requests(stdin, server)
	r.answers(stdout)
	_ = server.Wait() // its status is not the relay's
	return nil
}

// requests passes lines to the server until standard input ends.
func (r *relay) requests(server io.WriteCloser, process *exec.Cmd) {
	eachLine(os.Stdin, func(line []byte) {
		var m message
		_ = json.Unmarshal(line, &m) // what is no JSON is passed on like the rest
		if m.Method == "tools/call" {
			if m.Params.Name == r.ctl.get("drop") {
				r.must(Event{What: Dropped, Tool: m.Params.Name})
				return
			}
			r.mu.Lock()
			r.tools[string(m.ID)] = m.Params.Name
			r.mu.Unlock()
			r.must(Event{What: Forwarded, Tool: m.Params.Name, Line: string(line)})
		}
		_, _ = server.Write(line) // a dead server shows as the end of its output
	})
	if r.linger {
		return
	}
	_ = server.Close()
	time.AfterFunc(time.Second, func() { _ = process.Process.Kill() })
}

// answers passes lines back until the server's output ends.
func (r *relay) answers(server io.Reader) {
	eachLine(server, func(line []byte) {
		var m message
		_ = json.Unmarshal(line, &m)
		r.mu.Lock()
		tool, isCall := r.tools[string(m.ID)]
		if m.Method == "" {
			delete(r.tools, string(m.ID))
		}
		r.mu.Unlock()
		if m.Method != "" || !isCall {
			r.write(line)
			return
		}
		if tool != r.ctl.get("hold") {
			r.must(Event{What: Returned, Tool: tool, Nobody: !r.write(line)})
			return
		}
		r.must(Event{What: Held, Tool: tool, Answer: string(line)})
		go func() { // other answers pass by meanwhile
			for r.ctl.get("release") == "" {
				time.Sleep(5 * time.Millisecond)
			}
			r.must(Event{What: Returned, Tool: tool, Nobody: !r.write(line)})
		}()
	})
}

func (r *relay) write(line []byte) bool {
	r.out.Lock()
	defer r.out.Unlock()
	_, err := os.Stdout.Write(line)
	return err == nil
}

// must ends the relay when an event cannot be told: a test that waits for it
// would judge something that did not happen.
func (r *relay) must(e Event) {
	if err := r.ctl.report(e); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func eachLine(from io.Reader, f func(line []byte)) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			f(line)
		}
		if err != nil {
			return
		}
	}
}
