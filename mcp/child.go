package mcp

import (
	"context"
	"errors"
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
	endLimit   = 5 * time.Second        // for ending a group
	reapLimit  = time.Second            // for a leader to be gone after that
	drainPipe  = 500 * time.Millisecond // for what a dead child left in its pipe
	handOver   = 10 * time.Second       // for a client to take that
	closing    = 2 * time.Second        // the same when the upstream is being closed
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
	buried  bool // every request has its end

	own    atomic.Bool   // the handshake was ours, not the client's
	useful atomic.Bool   // it answered something
	exited chan struct{} // the process itself has ended
	gone   chan struct{} // every pending request has its end, and the upstream knows
	leave  sync.Once     // closes gone
}

// pending is a request that the child owes an answer.
type pending struct {
	// Of a request that passes through: whom to answer, and under which id.
	to *session
	id []byte
	// Of any other: called once; it must not wait for anything.
	done func(reply)
	// Of a guarded call: called when an answer began that cannot be read. The
	// call stays pending.
	cut func()
}

// reply is what became of a request.
type reply struct {
	env    envelope // of the answer; valid during the call of done
	broken bool     // an answer began and cannot be read
	sent   int      // bytes that left; only with err
	err    error    // there is no answer and there will be none
	ended  bool     // with err: it is known that nothing of the group is left
	sentAt time.Time
}

var (
	errGone  = errors.New("the upstream's process has ended")
	errStuck = errors.New("the upstream's process cannot be ended")
)

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
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	ended := c.proc.End(ctx)
	cancel()
	at := time.Now()
	// What left the group may still hold the pipe, and the client may not take
	// what was said last.
	_ = c.outFile.SetReadDeadline(at.Add(drainPipe))
	select {
	case <-read:
	case <-time.After(handOver):
	case <-c.up.quit:
		within(read, closing)
	}
	closeAll(c.inFile, c.outFile)
	c.log.Info().AnErr("status", err).Bool("group_ended", ended).Msg("upstream has ended")
	c.bury(reply{err: errGone, ended: ended, sent: 1, sentAt: at})
	c.up.announce(c.incarnation)
	c.leave.Do(func() { close(c.gone) })
}

// giveUp lets go of a process that survives KILL: it cannot be signalled, or
// hangs in the kernel.
func (c *child) giveUp() {
	c.log.Error().Msg("the upstream's process cannot be ended; it is left alone")
	c.bury(reply{err: errStuck, sent: 1, sentAt: time.Now()})
	c.leave.Do(func() { close(c.gone) })
}

// bury gives every request its end. What the client is told has a goroutine of
// its own: it may not be reading.
func (c *child) bury(r reply) {
	c.mu.Lock()
	left, again := c.pending, c.buried
	c.pending, c.buried = nil, true
	c.mu.Unlock()
	if again {
		return
	}
	var passed []*pending
	for _, p := range left {
		if p.done == nil {
			passed = append(passed, p)
		} else {
			p.done(r)
		}
	}
	failed := c.up.forget(c)
	go func() {
		for _, p := range passed {
			p.fail(r)
		}
		c.up.asks.drop(c, c.up.client.Load())
		if failed != nil {
			c.up.refuseInit(failed)
		}
	}()
}

// stopSending sees to it that nothing new is sent.
func (c *child) stopSending() {
	c.mu.Lock()
	c.dying = true
	c.mu.Unlock()
	c.up.mu.Lock()
	c.up.live.CompareAndSwap(c, nil)
	c.up.mu.Unlock()
}

func (c *child) isBuried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buried
}

func (c *child) isDying() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dying
}

// stop ends the child: standard input is closed, and after grace the group is
// ended. It returns when every request has its end, whether or not the process
// can be ended.
func (c *child) stop(grace time.Duration) {
	c.stopSending()
	_ = c.inFile.Close()
	if !within(c.exited, grace) {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		c.proc.End(ctx)
		cancel()
		if !within(c.exited, reapLimit) {
			c.giveUp()
		}
	}
	<-c.gone
}

// within waits for a channel to be closed, at most d.
func within(ch <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch:
		return true
	case <-t.C:
		return false
	}
}

// send sends a request: the line with our id in the place of its own. An error
// means that nothing was sent, and that the request has no end but this one.
func (c *child) send(line []byte, id span, p *pending) (key uint64, err error) {
	key = c.up.nextID.Add(1)
	return key, c.sendAs(key, line, id, p)
}

func (c *child) sendAs(key uint64, line []byte, id span, p *pending) error {
	c.mu.Lock()
	if c.dying {
		c.mu.Unlock()
		return errGone
	}
	c.pending[key] = p
	c.mu.Unlock()
	var num [20]byte
	n, err := c.in.write(line[:id.from], strconv.AppendUint(num[:0], key, 10), line[id.to:])
	switch {
	case err == nil:
		return nil
	case n > 0: // it understands nothing more; how the request ends is seen when it does
		c.log.Warn().Err(err).Int("bytes", n).Msg("a part of a request was written; the upstream is ended")
		go c.stop(0)
		return nil
	case c.take(key) == nil: // somebody else told it already
		return nil
	}
	go c.stop(stopGrace) // it takes nothing more
	c.stopSending()
	return err
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
