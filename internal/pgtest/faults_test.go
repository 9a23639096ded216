package pgtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestDown: whatever way a server goes down, it refuses connections, and what
// was committed is there when it is back on its port.
func TestDown(t *testing.T) {
	s := Start(t)
	url := s.Database(t)
	exec1(t, connect(t, url), "CREATE TABLE seen (how text)")
	for how, down := range map[string]func(){
		"killed":              s.Kill,
		"stopped":             func() { s.Stop(Fast) },
		"stopped immediately": func() { s.Stop(Immediate) },
		"killed while paused": func() { s.Pause(); s.Kill() },
	} {
		c := connect(t, url)
		exec1(t, c, "INSERT INTO seen VALUES ($1)", how)
		down()
		if err := c.Ping(t.Context()); err == nil {
			t.Errorf("%s: an old connection is served", how)
		}
		if _, err := pgx.Connect(t.Context(), url); err == nil {
			t.Errorf("%s: a new connection is served", how)
		}
		s.Start()
		if n := ask[int](t, connect(t, url), "SELECT count(*) FROM seen WHERE how = $1", how); n != 1 {
			t.Errorf("%s: %d rows, want 1", how, n)
		}
	}
	s.Restart(Fast)
	connect(t, url)
}

func TestPause(t *testing.T) {
	s := Start(t)
	c := connect(t, s.Database(t))
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, s.URL("postgres")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server answers a new connection: %v", err)
	}
	answer := make(chan error, 1)
	go func() { answer <- c.Ping(context.Background()) }()
	select {
	case err := <-answer:
		t.Errorf("a paused server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Resume()
	if err := <-answer; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}
