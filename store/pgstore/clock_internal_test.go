package pgstore

import (
	"math/rand/v2"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// world is a server and a machine with clocks of their own.
type world struct {
	server time.Duration // since the beginning, on the server
	steady time.Duration // on the machine's steady clock
	shift  time.Duration // of the machine's wall clock, beside what passed
}

var beginning = time.Unix(1_800_000_000, 0)

func (w *world) now() (t, wall time.Time) {
	return beginning.Add(w.steady), beginning.Add(w.server + w.shift)
}

func (w *world) pass(d time.Duration) { w.server, w.steady = w.server+d, w.steady+d }

func (w *world) serverTime() time.Time { return beginning.Add(w.server + 7*time.Hour) }

// sleep is what a machine does with a lid: its steady clock stands.
func (w *world) sleep(d time.Duration) { w.server += d }

// read lets the clock take in a reading that takes its time in both directions.
func (w *world) read(c *clock, there, back time.Duration) {
	sent, _ := w.now()
	w.pass(there)
	t := w.serverTime()
	w.pass(back)
	c.server(t, sent)
}

func newWorld() (*world, *clock) {
	w := &world{}
	return w, &clock{now: w.now}
}

// TestClockRandom: whatever answers take, and whatever the machine does, the
// clock is never ahead of the server's, never goes back, and is behind by no more
// than an answer takes.
func TestClockRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const slow = 3 * time.Second
	for range 200 {
		w, c := newWorld()
		var last idem.Instant
		told := 0
		for range 200 {
			switch rnd.IntN(10) {
			case 0:
				w.read(c, time.Duration(rnd.Int64N(int64(slow))), time.Duration(rnd.Int64N(int64(slow))))
			case 1, 2:
				w.read(c, time.Duration(rnd.Int64N(int64(time.Millisecond))), time.Duration(rnd.Int64N(int64(time.Millisecond))))
			case 3:
				w.sleep(time.Duration(rnd.Int64N(int64(time.Hour))))
			case 4:
				w.shift = time.Duration(rnd.IntN(3)-1) * 1000 * time.Hour // which no sleep makes up for
			default:
				w.pass(time.Duration(rnd.Int64N(int64(300 * time.Millisecond))))
			}
			now, ok := c.tell()
			if !ok {
				continue
			}
			told++
			behind := idem.InstantOf(w.serverTime()).Sub(now)
			if now < last || behind < 0 || behind > slow+2*slept {
				t.Fatalf("told %v after %v, %v behind the server", now.Time(), last.Time(), behind)
			}
			last = now
		}
		if told == 0 {
			t.Fatal("it was never told")
		}
	}
}

func TestClockTells(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(*world, *clock)
		told    bool
		behind  time.Duration
	}{
		"nothing was read":        {func(*world, *clock) {}, false, 0},
		"read just now":           {func(w *world, c *clock) { w.read(c, 0, 0) }, true, 0},
		"it goes on by itself":    {func(w *world, c *clock) { w.read(c, 0, 0); w.pass(900 * time.Millisecond) }, true, 0},
		"for a second":            {func(w *world, c *clock) { w.read(c, 0, 0); w.pass(freshFor + 1) }, false, 0},
		"the answer took a while": {func(w *world, c *clock) { w.read(c, 5, 70*time.Millisecond) }, true, 70 * time.Millisecond},
		"a faster one came later": {func(w *world, c *clock) { w.read(c, 5, 70*time.Millisecond); w.read(c, 0, 2) }, true, 2},
		"a slower one came later": {func(w *world, c *clock) { w.read(c, 0, 2); w.read(c, 5, 70*time.Millisecond) }, true, 2},
		"the machine slept":       {func(w *world, c *clock) { w.read(c, 0, 0); w.sleep(time.Minute) }, false, 0},
		"its clock was set back":  {func(w *world, c *clock) { w.read(c, 0, 0); w.shift = -time.Hour }, false, 0},
		"an import set the clock": {func(w *world, c *clock) { w.read(c, 0, 0); c.row(time.Hour, 0) }, false, 0},
		"the row is as it was":    {func(w *world, c *clock) { w.read(c, 0, 0); c.row(0, 5) }, true, 0},
		"and was read again":      {func(w *world, c *clock) { c.row(time.Hour, 0); w.read(c, 0, 0) }, true, -time.Hour},
		"the server's was set back": {func(w *world, c *clock) {
			w.read(c, 0, 0)
			w.server -= time.Minute
			w.shift = time.Minute
			w.read(c, 0, 0)
		},
			true, -time.Minute}, // it stands
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWorld()
			tc.happens(w, c)
			now, ok := c.tell()
			if ok != tc.told {
				t.Fatalf("told: %v", ok)
			}
			if behind := idem.InstantOf(w.serverTime()).Sub(now); ok && behind != tc.behind {
				t.Errorf("%v behind, want %v", behind, tc.behind)
			}
		})
	}
}

// TestClockStands: a reading that does not go on is noticed, and one that does
// again.
func TestClockStands(t *testing.T) {
	w, c := newWorld()
	high := idem.InstantOf(w.serverTime()).Add(time.Hour)
	c.row(0, high)
	for n, want := range []bool{false, true, true} {
		w.read(c, 0, time.Millisecond)
		w.pass(10 * time.Millisecond)
		if c.stands() != want {
			t.Errorf("reading %d: stands: %v", n, !want)
		}
	}
	c.row(2*time.Hour, high)
	w.read(c, 0, time.Millisecond)
	w.pass(10 * time.Millisecond)
	w.read(c, 0, time.Millisecond)
	if c.stands() {
		t.Error("it goes on, and is said to stand")
	}
}
