package policy

import (
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	r := Retry{MaxAttempts: 5, Initial: 200 * time.Millisecond, Max: time.Second, MaxElapsed: time.Minute}
	top := r.Schedule(func(n int64) int64 { return n - 1 })
	bottom := r.Schedule(func(int64) int64 { return 0 })
	if top.MaxAttempts != 5 || top.MaxElapsed != time.Minute {
		t.Errorf("schedule %+v", top)
	}
	for n, ms := range map[int]int{1: 200, 2: 400, 3: 800, 4: 1000, 5: 1000, 500: 1000} {
		want := time.Duration(ms) * time.Millisecond
		if got := top.Delay(n, 0); got != want {
			t.Errorf("after %d attempts at most %s, want %s", n, got, want)
		}
		if got := bottom.Delay(n, 0); got != 0 {
			t.Errorf("after %d attempts at least %s, want 0: the jitter is full", n, got)
		}
	}
	for floor, want := range map[time.Duration]time.Duration{
		3 * time.Second: 3 * time.Second, MaxFloor: MaxFloor, // honoured
		-time.Second: r.Initial, MaxFloor + 1: r.Initial, 1 << 62: r.Initial, // ignored, but never at once
	} {
		if got := bottom.Delay(1, floor); got != want {
			t.Errorf("floor %s: at least %s, want %s", floor, got, want)
		}
	}
	for range 1000 {
		if d := r.Schedule(nil).Delay(2, time.Second); d < time.Second || d > 1400*time.Millisecond {
			t.Fatalf("waits %s", d)
		}
	}
	for _, odd := range []Retry{{}, {Initial: time.Second}, {Max: time.Second}, {Initial: time.Second, Max: time.Millisecond}} {
		for n := range 70 {
			if d := odd.Schedule(nil).Delay(n, 0); d < 0 || d > max(0, odd.Max) {
				t.Errorf("%+v waits %s after %d", odd, d, n)
			}
		}
	}
}
