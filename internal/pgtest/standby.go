package pgtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Standby starts a copy of the server that follows it and can be read from. It
// takes over the server's parameters, and opts may change them.
func (s *Server) Standby(t testing.TB, opts ...Option) *Server {
	t.Helper()
	if s.shared {
		t.Fatal("PostgreSQL: a standby: others share this server, use pgtest.Start")
	}
	c := &cluster{settings: slices.Clone(s.settings)}
	for _, o := range opts {
		o(c)
	}
	standby := begin(t, c, s.copyTo(c))
	standby.primary = s
	return standby
}

// copyTo copies a running server. The slot keeps what the copy has yet to read.
func (s *Server) copyTo(c *cluster) error {
	if err := s.rig.place(c); err != nil {
		return err
	}
	return s.rig.run(c.dir, "pg_basebackup", "-D", c.data(),
		"-h", s.host, "-p", strconv.Itoa(s.port), "-U", "postgres",
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync",
		"--create-slot", "--slot=standby_"+strconv.Itoa(c.port))
}

// CatchUp waits until a standby shows everything that its primary has committed
// by now.
func (s *Server) CatchUp() {
	s.t.Helper()
	s.fault("catch up", func() error {
		if s.primary == nil {
			return errors.New("it is no standby")
		}
		var written string
		if err := s.primary.ask(&written, "SELECT pg_current_wal_insert_lsn()::text"); err != nil {
			return err
		}
		for end := time.Now().Add(readyTime); ; time.Sleep(look) {
			var shown bool
			if err := s.ask(&shown, "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", written); err != nil || shown {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("it has not replayed %s in %v", written, readyTime)
			}
		}
	})
}

// Promote makes a standby a primary, and returns when it accepts writes. Its
// old primary, if it runs, does not know: both accept writes then.
func (s *Server) Promote() {
	s.t.Helper()
	s.fault("promote", func() error {
		var done bool
		if err := s.ask(&done, "SELECT pg_promote()"); err != nil {
			return err
		}
		if !done {
			return errors.New("it is not done in a minute")
		}
		return nil
	})
}
