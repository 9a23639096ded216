package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// orders say what a host's process has to do.
type orders struct {
	Host, Life int
	Machine    string
	Seed       uint64
	Began      moment // of the run
	URL        string // of the ledger, through the host's proxy
	Shop       string // socket
	History    string // file
	Lease      time.Duration
	Patience   time.Duration
	Skew       time.Duration
	Reconcile  bool
	Settle     time.Duration
	Atomic     bool // effects commit with their outcomes
	Quiet      bool // it asks for nothing
}

// live is a host's process: it asks until it is told to rest, recovers until its
// standard input ends, and is killed at any time.
func live(o orders) error {
	rec, err := newRecorder(o.History)
	if err != nil {
		return err
	}
	life, rest := listen()
	st, err := open(life, o)
	if life.Err() != nil { // it was not needed
		return nil
	}
	if err != nil {
		return err
	}
	machine, err := newMachine(o.Machine)
	if err != nil {
		return err
	}
	h := &host{orders: o, rec: rec, client: newClient(o.Shop, fmt.Sprintf("%d.%d", o.Host, o.Life), o.Skew),
		rng: rand.New(rand.NewPCG(o.Seed, uint64(o.Host)<<32|uint64(o.Life)))}
	g, err := idem.New(idem.Config{Store: &recorded{Store: st, rec: rec}, Policy: h, Owner: machine.self, Processes: machine})
	if err != nil {
		return err
	}
	fmt.Println(ready)
	var running, asking sync.WaitGroup
	running.Go(func() { _ = g.Recover(life, tenant, []string{server}) }) // until life ends
	if !o.Quiet {
		for range 3 {
			asking.Go(func() { h.ask(rest, g, st) })
		}
	}
	<-life.Done()
	asking.Wait()
	running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(g.Close(ctx), st.Close())
}

// listen reads the orders that come later. life ends with standard input, rest
// with its first line.
func listen() (life, rest context.Context) {
	life, die := context.WithCancel(context.Background())
	rest, stop := context.WithCancel(life)
	go func() {
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			stop()
			_, _ = in.ReadString('\n') // its end
		}
		stop()
		die()
	}()
	return life, rest
}

// ready is what a host says once it has the ledger open.
const ready = "ready"

// open tries until the ledger can be reached.
func open(ctx context.Context, o orders) (*pgstore.Store, error) {
	for {
		st, err := pgstore.Open(ctx, pgstore.Config{URL: o.URL, Patience: o.Patience})
		if err == nil || ctx.Err() != nil {
			return st, err
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(20 * time.Millisecond)
	}
}

// machine tells what became of processes, as far as one host can know it: those
// of other machines may live.
type machine struct {
	real *proc.System
	self idem.Owner
}

func newMachine(name string) (*machine, error) {
	system, err := proc.New()
	if err != nil {
		return nil, err
	}
	m := &machine{real: system, self: system.Self()}
	m.self.Machine = name
	return m, nil
}

func (m *machine) Dead(o idem.Owner) bool {
	if o.Machine != m.self.Machine {
		return false
	}
	o.Machine = m.real.Self().Machine
	return m.real.Dead(o)
}

func (m *machine) EndGroup(context.Context, idem.Owner, idem.Group) bool { return false } // there are none

const (
	tenant = "default"
	server = "shop"
)

// host asks for orders at random.
type host struct {
	orders
	rec    *recorder
	client *client

	mu  sync.Mutex
	rng *rand.Rand
}

func (h *host) n(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

func (h *host) between(a, b time.Duration) time.Duration { return a + time.Duration(h.n(int(b-a))) }

// Rules implements idem.Policy.
func (h *host) Rules(tool string) (idem.Rules, bool) {
	r := idem.Rules{
		Operation: "call", Repeat: idem.RepeatOccurrence, Wait: 300 * time.Millisecond, Lease: h.Lease,
		Retry: idem.Retry{MaxAttempts: 5, Delay: func(_ int, floor time.Duration) time.Duration {
			return max(floor, h.between(time.Millisecond, 80*time.Millisecond))
		}},
		FailureTTL: 700 * time.Millisecond, Retention: time.Hour, OccurrenceRetention: time.Hour,
	}
	if tool == "shop/slow" { // frees its callers early
		r.Timeout = h.Lease / 2
	}
	if tool == "shop/book" {
		r.Key = func(args []byte) (string, error) { return string(args), nil }
	}
	if h.Reconcile && !h.Atomic {
		r.Query = &idem.QueryRules{Reconciler: h.client, Settle: h.Settle, Every: 150 * time.Millisecond, GiveUp: giveUp}
	}
	return r, true
}

// ask keeps asking. What is asked for changes with the time, for all hosts alike,
// so that they meet.
func (h *host) ask(ctx context.Context, g *idem.Guard, st *pgstore.Store) {
	for ctx.Err() == nil {
		round := int(now().sub(h.Began) / (800 * time.Millisecond))
		name := fmt.Sprintf("%d-%d", round, h.n(2))
		a := idem.Ask{Tenant: tenant, Task: "task", Args: []byte(`{"name":"` + name + `"}`)}
		switch h.n(8) {
		case 0:
			a.Tool, a.HostKey = "shop/order", name
			name = "host " + name
		case 1, 2:
			a.Tool = "shop/book"
			name = "book " + name
		case 3, 4:
			a.Tool, a.Step = "shop/slow", name
			name = "slow " + name
		case 5: // every outcome that was handed over makes room for another
			a.Tool, name = "shop/click", ""
		default:
			a.Tool, a.Step = "shop/order", name
			name = "step " + name
		}
		effect := h.client.effect(name)
		if h.Atomic {
			effect = h.book(st, name)
		}
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.between(30*time.Millisecond, 2*time.Second))
		answer := g.Do(patience, a, effect)
		cancel()
		h.rec.answer(&answer)
		answer.Deliver()(nil)
		time.Sleep(h.between(time.Millisecond, 80*time.Millisecond))
	}
}
