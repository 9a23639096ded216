package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

const soon = 10 * time.Second

func (s suite) watch(t *testing.T) {
	start := func(k kit, ctx context.Context, after idem.Version) <-chan error {
		ch := make(chan error, 1)
		go func() { ch <- k.store.Watch(ctx, num(1), after) }()
		return ch
	}
	s.each(t, map[string]func(*testing.T, kit){
		"past already": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			if err := within(t, soon, "watch", start(k, k.ctx(), 0)); err != nil {
				t.Fatal(err)
			}
		},
		"woken by a commit": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			for v := idem.Version(1); v < 20; v++ {
				a, b := start(k, k.ctx(), v), start(k, k.ctx(), v)
				k.mustCommit(puts(put(num(1), record("a"))))
				for _, ch := range []<-chan error{a, b} {
					if err := within(t, soon, "watch", ch); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
		"before there is a row": func(t *testing.T, k kit) {
			ch := start(k, k.ctx(), 0)
			time.Sleep(20 * time.Millisecond)
			k.mustCommit(puts(put(num(1), record("a"))))
			if err := within(t, soon, "watch", ch); err != nil {
				t.Fatal(err)
			}
		},
		"dropped": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			ch := start(k, k.ctx(), 1)
			k.mustCommit(idem.Change{Drops: []idem.Ref{op(num(1))}})
			if err := within(t, soon, "watch", ch); err != nil {
				t.Fatal(err)
			}
		},
		"the context ends": func(t *testing.T, k kit) {
			k.mustCommit(puts(put(num(1), record("a"))))
			ctx, cancel := context.WithTimeout(k.ctx(), 50*time.Millisecond)
			defer cancel()
			ch := start(k, ctx, 1)
			// Another operation's change is not this one's.
			k.mustCommit(puts(put(num(2), record("b"))))
			err := within(t, soon, "watch", ch)
			for spurious := 0; err == nil && spurious < 3; spurious++ {
				err = within(t, soon, "watch", start(k, ctx, 1))
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
		},
	})
}

func (s suite) clock(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"is near the wall clock and goes on": func(t *testing.T, k kit) {
			a := k.mustClock()
			s.pass(k.sub, 20*time.Millisecond)
			b := k.mustClock()
			if d := b.Sub(a); d < 20*time.Millisecond {
				t.Fatalf("20ms are %v", d)
			}
			if !s.have.Clock && time.Since(b.Time()).Abs() > time.Minute {
				t.Fatalf("the clock is at %v", b.Time())
			}
		},
		"never goes back": func(t *testing.T, k kit) {
			if !s.have.Clock {
				t.Skip("the clock of this store is not injectable (Features.Clock)")
			}
			before := k.mustClock()
			k.sub.Advance(-time.Hour)
			if now := k.mustClock(); now < before {
				t.Fatalf("went back %v", before.Sub(now))
			}
			if stamp := k.mustCommit(puts(put(num(1), record("a")))); stamp.Time < before {
				t.Fatalf("a stamp went back %v", before.Sub(stamp.Time))
			}
		},
	})
}

func (s suite) close(t *testing.T) {
	s.each(t, map[string]func(*testing.T, kit){
		"every method says so": func(t *testing.T, k kit) {
			ch := make(chan error, 1)
			go func() { ch <- k.store.Watch(context.Background(), num(1), 0) }()
			time.Sleep(20 * time.Millisecond)
			if err := k.store.Close(); err != nil {
				t.Fatal(err)
			}
			if err := k.store.Close(); err != nil {
				t.Errorf("a second close: %v", err)
			}
			errs := map[string]error{"Watch that waits": within(t, soon, "watch", ch)}
			ctx := context.Background()
			_, errs["Load"] = k.store.Load(ctx, op(num(1)))
			_, errs["Commit"] = k.store.Commit(ctx, puts(put(num(1), record("a"))))
			_, errs["List"] = k.store.List(ctx, idem.Query{})
			_, errs["Clock"] = k.store.Clock(ctx)
			errs["Watch"] = k.store.Watch(ctx, num(1), 0)
			for name, err := range errs {
				if !errors.Is(err, idem.ErrClosed) || errors.Is(err, idem.ErrCommitUnknown) {
					t.Errorf("%s: error %v", name, err)
				}
			}
		},
	})
}
