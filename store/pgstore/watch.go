package pgstore

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
)

const (
	// ringDelay gathers what changed before other hosts are told: one message for
	// many, and none of it on a caller's path.
	ringDelay = 20 * time.Millisecond
	// ringIDs is how many ids one notification carries; its limit is 8000 bytes.
	ringIDs = 190
	// pollHearing and pollDeaf are how often waiters look by themselves: while
	// notifications arrive, and while they do not.
	pollHearing = 2 * time.Second
	pollDeaf    = 100 * time.Millisecond
)

// bell tells other hosts what changed, and hears what they tell. Messages are
// only hints: one that is lost costs a waiter the time until it looks itself.
type bell struct {
	mu      sync.Mutex
	pending []idem.ID // to tell
	ringing bool
	hearing bool // notifications arrive
	ears    bool // somebody listens, or tries to
}

// Watch implements idem.Store.
func (s *Store) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.bell.mu.Lock()
	if !s.bell.ears && !s.pooled && !s.closed.Load() {
		s.bell.ears = true
		s.wg.Go(s.listen)
	}
	s.bell.mu.Unlock()
	for {
		err := s.look(ctx, id, after)
		if errors.Is(err, errLook) {
			continue
		}
		if err != nil {
			return err
		}
		// Late news, our own among them, wakes for nothing.
		if v, err := s.versionOf(ctx, id); err != nil || v > after || (v == 0 && after > 0) {
			return err
		}
	}
}

// errLook: the time to look again has come.
var errLook = errors.New("look again")

// look waits until the version has passed, or until it is time to look again.
func (s *Store) look(ctx context.Context, id idem.ID, after idem.Version) error {
	s.bell.mu.Lock()
	every := pollDeaf
	if s.bell.hearing {
		every = pollHearing
	}
	s.bell.mu.Unlock()
	bounded, cancel := context.WithTimeoutCause(ctx, every, errLook)
	defer cancel()
	var failed error
	err := s.watchers.Wait(bounded, id, after, func() (v idem.Version, err error) {
		v, failed = s.versionOf(ctx, id)
		return v, failed
	})
	if err != nil && failed == nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), errLook) {
		return errLook
	}
	return err
}

func (s *Store) versionOf(ctx context.Context, id idem.ID) (v idem.Version, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = s.read(ctx, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, s.sql(`SELECT version FROM {schema}.operation WHERE id = $1`), id[:]).Scan(&v)
		if errors.Is(err, pgx.ErrNoRows) {
			v, err = 0, nil
		}
		return err
	})
	return v, err
}

// announce wakes waiters of this process at once, and those of others soon.
func (s *Store) announce(p *plan) {
	s.watchers.Wake(p.changed)
	if len(p.ended) == 0 {
		return
	}
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	s.bell.pending = append(s.bell.pending, p.ended...)
	if !s.bell.ringing && !s.closed.Load() {
		s.bell.ringing = true
		s.wg.Go(s.ring)
	}
}

// ring tells other hosts what changed, until there is nothing more to tell.
func (s *Store) ring() {
	for {
		sleep(s.ctx, ringDelay)
		s.bell.mu.Lock()
		ids := s.bell.pending
		s.bell.pending = nil
		if s.bell.ringing = len(ids) > 0 && s.ctx.Err() == nil; !s.bell.ringing {
			s.bell.mu.Unlock()
			return
		}
		s.bell.mu.Unlock()
		var messages []string
		for len(ids) > 0 {
			n := min(len(ids), ringIDs)
			messages = append(messages, message(ids[:n]))
			ids = ids[n:]
		}
		ctx, cancel := s.bound(s.ctx)
		_, _ = s.pool.Exec(ctx, `SELECT pg_notify($1, m) FROM unnest($2::text[]) m, `+relax, s.schemaName, messages)
		cancel()
	}
}

func message(ids []idem.ID) string {
	var b strings.Builder
	for i := range ids {
		b.WriteString(hex.EncodeToString(ids[i][:]))
	}
	return b.String()
}

// heard is the inverse of message. What others send on the channel is no id of
// ours, and wakes nobody.
func heard(m string) []idem.ID {
	b, err := hex.DecodeString(m)
	if err != nil {
		return nil
	}
	var ids []idem.ID
	for len(b) >= len(idem.ID{}) {
		ids = append(ids, idem.ID(b[:len(idem.ID{})]))
		b = b[len(idem.ID{}):]
	}
	return ids
}

// listen hears other hosts on a connection of its own, which it opens again when
// it is lost.
func (s *Store) listen() {
	for pause := firstPause; s.ctx.Err() == nil; pause = min(2*pause, 10*lastPause) {
		if s.hear() {
			pause = firstPause
		}
		sleep(s.ctx, pause)
	}
}

// hear listens until the connection is lost, and reports whether it ever did.
func (s *Store) hear() (ever bool) {
	ctx, cancel := s.bound(s.ctx)
	conn, err := pgx.ConnectConfig(ctx, s.conf.ConnConfig)
	if err == nil {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.schemaName}.Sanitize())
	}
	cancel()
	if err != nil {
		return false
	}
	// What was told before may have been missed; who waits looks himself, and soon.
	s.hearing(true)
	defer s.hearing(false)
	for {
		n, err := conn.WaitForNotification(s.ctx)
		if err != nil {
			return true
		}
		s.watchers.Wake(heard(n.Payload))
	}
}

func (s *Store) hearing(is bool) {
	s.bell.mu.Lock()
	s.bell.hearing = is
	s.bell.mu.Unlock()
}
