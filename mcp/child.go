package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mcp-idem/mcp-idem/internal/proc"
)

const (
	endLimit   = 10 * time.Second       // for ending a group
	drainPipe  = 500 * time.Millisecond // for what a dead child left in its pipe
	stderrKept = 20                     // lines of standard error kept for messages
)

// child is one process of an upstream, from its start until nothing of its
// group is left and every request that it got has an end.
type child struct {
	up          *Upstream
	proc        *proc.Child
	incarnation string
	log         zerolog.Logger
	born        time.Time
	in          *lineWriter
	inFile      *os.File
	outFile     *os.File
	stderr      *tail

	// Of the handshake; guarded by Upstream.mu.
	shaking bool // one is under way
	shook   bool // one has been finished
	modern  bool // the server speaks the stateless protocol

	mu      sync.Mutex
	pending map[uint64]*pending
	dying   bool // nothing can be sent any more

	own    atomic.Bool   // the handshake was ours, not the client's
	useful atomic.Bool   // it answered something
	exited chan struct{} // the process itself has ended
	gone   chan struct{} // every pending request has its end, and the upstream knows
}

// pending is a request that the child owes an answer.
type pending struct {
	// Of a request that passes through: whom to answer, and under which id.
	to *session
	id []byte
	// Of any other: called once, on the goroutine that reads the child.
	done func(reply)
}

// reply is what became of a request.
type reply struct {
	env    envelope // of the answer; valid during the call of done
	broken bool     // an answer began and cannot be read to its end
	sent   int      // bytes that left; only with err
	err    error    // there is no answer and there will be none
	ended  bool     // with err: it is known that nothing of the group is left
	sentAt time.Time
}

var errGone = errors.New("the upstream's process has ended")

// spawn starts a process. The error is that of a command that cannot be run.
func (u *Upstream) spawn() (*child, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		closeAll(inR, inW)
		return nil, err
	}
	cmd := exec.Command(u.cfg.Command, u.cfg.Args...)
	cmd.Dir = u.cfg.Dir
	if u.cfg.Env != nil {
		cmd.Env = append(os.Environ(), u.cfg.Env...)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		closeAll(inR, inW, outR, outW)
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	p, err := proc.Start(cmd)
	closeAll(inR, outW, errW)
	if err != nil {
		closeAll(inW, outR, errR)
		return nil, err
	}
	c := &child{
		up: u, proc: p, incarnation: newID(), born: time.Now(),
		log: u.log.With().Int("pid", cmd.Process.Pid).Logger(),
		in:  &lineWriter{w: inW}, inFile: inW, outFile: outR, stderr: &tail{},
		pending: map[uint64]*pending{}, exited: make(chan struct{}), gone: make(chan struct{}),
	}
	c.log.Debug().Str("incarnation", c.incarnation).Msg("upstream started")
	go c.copyStderr(errR)
	read := make(chan struct{})
	go func() { defer close(read); c.read() }()
	go c.wait(read)
	return c, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// wait sees the process out. The whole group is ended before any request gets
// its end: what a pending attempt is told must be true of the grandchildren
// too.
func (c *child) wait(read <-chan struct{}) {
	err := c.proc.Cmd.Wait()
	close(c.exited)
	c.stopSending()
	c.up.live.CompareAndSwap(c, nil)
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	ended := c.proc.End(ctx)
	cancel()
	at := time.Now()
	// What left the group may still hold the pipe.
	_ = c.outFile.SetReadDeadline(at.Add(drainPipe))
	<-read
	closeAll(c.inFile, c.outFile)
	c.log.Info().AnErr("status", err).Bool("group_ended", ended).Msg("upstream has ended")
	c.mu.Lock()
	left := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, p := range left {
		p.fail(reply{err: errGone, ended: ended, sent: 1, sentAt: at})
	}
	c.up.buried(c)
	close(c.gone)
}

func (c *child) stopSending() {
	c.mu.Lock()
	c.dying = true
	c.mu.Unlock()
}

// stop ends the child: standard input is closed, and after grace the group is
// ended. It returns when every request has its end.
func (c *child) stop(grace time.Duration) {
	c.stopSending()
	_ = c.inFile.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		defer cancel()
		c.proc.End(ctx)
	}
	<-c.gone
}

// send sends a request: the line with our id in the place of its own. An error
// means that it has no end but this one; n of its bytes were taken.
func (c *child) send(line []byte, id span, p *pending) (key uint64, n int, err error) {
	key = c.up.nextID.Add(1)
	c.mu.Lock()
	if c.dying {
		c.mu.Unlock()
		return 0, 0, errGone
	}
	c.pending[key] = p
	c.mu.Unlock()
	var num [20]byte
	n, err = c.in.write(line[:id.from], strconv.AppendUint(num[:0], key, 10), line[id.to:])
	if err == nil {
		return key, n, nil
	}
	if c.take(key) == nil { // somebody else told it already
		return key, n, nil
	}
	c.stopSending()
	if n > 0 {
		go c.stop(0) // after half a line the server understands nothing more
	}
	return key, n, err
}

// take removes a pending request; nil: it has its end already.
func (c *child) take(key uint64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[key]
	delete(c.pending, key)
	return p
}

func (p *pending) fail(r reply) {
	if p.done != nil {
		p.done(r)
		return
	}
	p.to.failPassed(p.id, r)
}

// read hands on what the child says, in order.
func (c *child) read() {
	in := newLineReader(c.outFile)
	var p parser
	var noise burst
	for {
		line, err := in.next()
		if len(line) > 0 {
			c.line(&p, line, &noise)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				c.log.Warn().Err(err).Msg("cannot read from the upstream")
			}
			break
		}
	}
	select {
	case <-c.exited:
	default: // it closed its standard output and lives on: of no use any more
		go c.stop(time.Second)
	}
}

func (c *child) line(p *parser, line []byte, noise *burst) {
	e, err := p.parse(line)
	switch {
	case err == nil && e.method != "":
		noise.over()
		c.up.fromChild(c, e)
	case e.id.there() && e.method == "" && (e.result.there() || e.errObj.there() || p.s.open == `"result"` || p.s.open == `"error"`):
		noise.over()
		c.answer(e, err)
	default:
		if noise.begins() {
			c.log.Warn().AnErr("reason", err).Bytes("line", line[:min(len(line), 200)]).Msg("upstream wrote something that is no message")
		}
	}
}

func (c *child) answer(e envelope, err error) {
	if !c.useful.Load() {
		c.useful.Store(true)
		c.up.useful.Store(true)
	}
	key, perr := strconv.ParseUint(string(bytes.Trim(e.rawID(), `"`)), 10, 64)
	var to *pending
	if perr == nil {
		to = c.take(key)
	}
	switch {
	case to == nil:
		c.log.Debug().Bytes("id", e.rawID()).Msg("an answer that nobody waits for")
	case to.done != nil:
		to.done(reply{env: e, broken: err != nil})
	case err != nil:
		c.log.Warn().AnErr("reason", err).Msg("an answer of the upstream cannot be read")
		to.fail(reply{err: err, sent: 1})
	default:
		to.to.passAnswer(to.id, e)
	}
}
