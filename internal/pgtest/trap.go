package pgtest

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Trap waits on a [Proxy] for a request and does something to it, once. A trap
// that no request has met by the end of the test fails it.
type Trap struct {
	t      testing.TB
	kind   trapKind
	sql    string // lower case; the request executes a statement with this in it
	sprung chan struct{}
	free   chan struct{} // for hold: the request may go on
	once   sync.Once

	answer string // what was swallowed; read it once sprung
}

type trapKind int

const (
	dropRequest trapKind = iota
	dropResponse
	holdRequest
)

// trapTime is how long a test waits for a request at a trap.
const trapTime = 30 * time.Second

// DropNextRequest cuts the connection that next asks for a statement with sql
// in it ("" for any, case is ignored), before anything of the request reaches
// the server: the client gets an error, and nothing was executed.
func (p *Proxy) DropNextRequest(sql string) *Trap { return p.set(dropRequest, sql) }

// DropNextResponse lets the next request with sql in it through, waits until
// the server has finished with it, swallows the whole answer and cuts the
// connection: the client gets an error, and the statement was executed. With
// "commit" that is the commit whose outcome the client cannot know.
func (p *Proxy) DropNextResponse(sql string) *Trap { return p.set(dropResponse, sql) }

// HoldNextRequest keeps the next request with sql in it on its way until
// [Trap.Release]. It reaches the server then even when the client has given up
// and is gone.
func (p *Proxy) HoldNextRequest(sql string) *Trap { return p.set(holdRequest, sql) }

func (p *Proxy) set(kind trapKind, sql string) *Trap {
	trap := &Trap{t: p.t, kind: kind, sql: strings.ToLower(sql), sprung: make(chan struct{}), free: make(chan struct{})}
	p.relay.set(trap)
	p.t.Cleanup(func() {
		p.relay.unset(trap)
		trap.Release()
		if !trap.Sprung() && !p.t.Failed() && !p.t.Skipped() {
			p.t.Errorf("no request with %q has met the trap that was set for it", sql)
		}
	})
	return trap
}

// Sprung reports whether the trap has done its work. A hold has as soon as it
// holds a request.
func (tr *Trap) Sprung() bool {
	select {
	case <-tr.sprung:
		return true
	default:
		return false
	}
}

// Wait waits until the trap has done its work, and returns the outcome that
// [Proxy.DropNextResponse] kept from the client: the tag of the last command,
// as in "COMMIT" or "INSERT 0 1", or "ERROR code: text".
func (tr *Trap) Wait() string {
	tr.t.Helper()
	select {
	case <-tr.sprung:
		return tr.answer
	case <-time.After(trapTime):
		tr.t.Fatalf("no request with %q has met the trap that was set for it in %v", tr.sql, trapTime)
		return ""
	}
}

// Release lets a held request go on. It may be called more than once.
func (tr *Trap) Release() { tr.once.Do(func() { close(tr.free) }) }

func (tr *Trap) matches(sqls []string) bool {
	for _, sql := range sqls {
		if strings.Contains(strings.ToLower(sql), tr.sql) {
			return true
		}
	}
	return false
}
