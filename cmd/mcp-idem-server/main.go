// Command mcp-idem-server guards MCP servers: it makes the side effects of
// their tools happen once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog/diode"
)

// Exit statuses.
const (
	exitOK    = 0
	exitFail  = 1
	exitUsage = 2
)

func main() {
	// A client that closes its end must not kill the gateway before outcomes are
	// recorded.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit((&program{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv}).run(ctx, os.Args[1:]))
}

// program is the command with everything it takes from outside.
type program struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env func(string) (string, bool)

	flags flags
	sink  *diode.Writer // of the log; nil: nothing was logged
}

// usageError is a mistake of the caller's: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

// reported is an error that was printed already.
var errReported = errors.New("reported")

func (p *program) run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	err := root.ExecuteContext(ctx)
	p.flushLog()
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintf(p.err, "mcp-idem-server: %s\n", scrub(err.Error()))
	}
	if isUsage(err) {
		return exitUsage
	}
	return exitFail
}
