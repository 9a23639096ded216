package mcp

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/mcp-idem/mcp-idem/internal/proc"
)

const (
	endLimit   = 5 * time.Second        // for ending a group
	reapLimit  = time.Second            // for a leader to be gone after that
	drainPipe  = 500 * time.Millisecond // for what a dead process left in its pipe
	handOver   = 10 * time.Second       // for a client to take that
	closing    = 2 * time.Second        // the same when the upstream is being closed
	stderrKept = 20                     // lines of standard error kept for messages
)

// process is the wire to a server that speaks stdio. It ends when nothing of its
// group is left.
type process struct {
	peer    *peer
	proc    *proc.Child
	in      *lineWriter
	inFile  *os.File
	outFile *os.File
	stderr  *tail
	exited  chan struct{} // the process itself has ended
}

// spawn starts a process. The error is that of a command that cannot be run.
func (u *Upstream) spawn() (*peer, error) {
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
	c := u.newPeer(u.log.With().Int("pid", cmd.Process.Pid).Logger())
	c.group = p.Group
	w := &process{peer: c, proc: p, in: &lineWriter{w: inW}, inFile: inW, outFile: outR, stderr: &tail{}, exited: make(chan struct{})}
	c.wire = w
	c.log.Debug().Str("incarnation", c.incarnation).Msg("upstream started")
	go w.copyStderr(errR)
	read := make(chan struct{})
	go func() { defer close(read); w.read() }()
	go w.wait(read)
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
func (w *process) wait(read <-chan struct{}) {
	err := w.proc.Cmd.Wait()
	close(w.exited)
	w.peer.stopSending()
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	ended := w.proc.End(ctx)
	cancel()
	at := time.Now()
	// What left the group may still hold the pipe, and the client may not take
	// what was said last.
	_ = w.outFile.SetReadDeadline(at.Add(drainPipe))
	select {
	case <-read:
	case <-time.After(handOver):
	case <-w.peer.up.quit:
		within(read, closing)
	}
	closeAll(w.inFile, w.outFile)
	w.peer.log.Info().AnErr("status", err).Bool("group_ended", ended).Msg("upstream has ended")
	w.peer.left(reply{err: errGone, ended: ended, sent: 1, sentAt: at})
}

// giveUp lets go of a process that survives KILL: it cannot be signalled, or
// hangs in the kernel.
func (w *process) giveUp() {
	w.peer.log.Error().Msg("the upstream's process cannot be ended; it is left alone")
	w.peer.bury(reply{err: errStuck, sent: 1, sentAt: time.Now()})
	w.peer.leave.Do(func() { close(w.peer.gone) })
}

// end closes standard input and, after grace, ends the group. A process that
// cannot be ended is left alone.
func (w *process) end(grace time.Duration) {
	_ = w.inFile.Close()
	if !within(w.exited, grace) {
		ctx, cancel := context.WithTimeout(context.Background(), endLimit)
		w.proc.End(ctx)
		cancel()
		if !within(w.exited, reapLimit) {
			w.giveUp()
		}
	}
}

func (w *process) request(_ uint64, parts ...[]byte) (int, error) { return w.in.write(parts...) }

func (w *process) notify(parts ...[]byte) error {
	_, err := w.in.write(parts...)
	return err
}

func (w *process) agreed([]byte) {}

func (w *process) ending() bool { return w.proc.Ending() }

func (w *process) lastWords() []string { return w.stderr.last() }

// read hands on what the process says, in order.
func (w *process) read() {
	in := newLineReader(w.outFile, w.peer.up.cfg.lineLimit)
	var p parser
	var noise burst
	for {
		line, err := in.next()
		if errors.Is(err, errLong) {
			w.peer.long(&p, line, in.tail)
			continue
		}
		if len(line) > 0 {
			w.peer.line(&p, line, &noise, nil)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				w.peer.log.Warn().Err(err).Msg("cannot read from the upstream")
			}
			break
		}
	}
	select {
	case <-w.exited:
	default: // it closed its standard output and lives on: of no use any more
		go w.peer.stop(time.Second)
	}
}
