package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/internal/core"
)

// Store is a ledger in Postgres. Safe for concurrent use.
type Store struct {
	*place
	pool     *pgxpool.Pool
	ledger   [16]byte // its id
	made     bool     // by Open
	clock    *clock
	watchers *core.Watchers
	lanes    lanes
	loads    loads
	bell     bell

	ctx    context.Context // of what runs in the background; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	busy   atomic.Bool // something was committed since the clock was noted

	closed    atomic.Bool
	gone      atomic.Pointer[error] // why nothing works any more
	doubted   atomic.Int64          // when a commit was last called unknown, in Unix nanoseconds
	closeOnce sync.Once
}

var _ idem.Store = (*Store)(nil)

// ready is checked before every access.
func (s *Store) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return idem.ErrClosed
	}
	if gone := s.gone.Load(); gone != nil {
		return *gone
	}
	return nil
}

// same checks that the ledger is the one that was opened: a database that was
// dropped and made anew, a restored backup or a failover to a server of another
// cluster must not pass for it. Once it is not, nothing works any more.
func (s *Store) same(id [16]byte) error {
	if id == s.ledger {
		return nil
	}
	err := fmt.Errorf("%w: %s: another ledger is in its place now; restart this program if that is wanted", ErrGone, s.name)
	s.gone.CompareAndSwap(nil, &err)
	return err
}

// Clock implements idem.Store. Where a reading of the server's clock is at most
// a second old, the time is told from it.
func (s *Store) Clock(ctx context.Context) (idem.Instant, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	if now, ok := s.clock.tell(); ok {
		return now, nil
	}
	return s.askTime(ctx)
}

func (s *Store) askTime(ctx context.Context) (now idem.Instant, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		sent := time.Now()
		if err := s.pool.QueryRow(ctx, s.sql(`SELECT `+moment)).Scan(&now); err != nil {
			return err
		}
		now = s.clock.ledger(now, sent)
		return nil
	})
	return now, err
}

// readClock reads the table clock, which an import may have set forward.
func (s *Store) readClock(ctx context.Context) error {
	return s.read(ctx, func(ctx context.Context) error {
		var ahead time.Duration
		var high idem.Instant
		var id [16]byte
		if err := s.pool.QueryRow(ctx, s.sql(`SELECT ahead, high, (SELECT id FROM {schema}.ledger) FROM {schema}.clock`)).Scan(&ahead, &high, &id); err != nil {
			return err
		}
		if err := s.same(id); err != nil {
			return err
		}
		s.clock.row(ahead, high)
		return nil
	})
}

// read runs a query, and again on another connection where the first one was
// lost: reading twice does no harm.
func (s *Store) read(ctx context.Context, query func(ctx context.Context) error) error {
	deadline := time.Now().Add(s.patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		bound, cancel := s.bound(ctx)
		err := query(bound)
		cancel()
		if err == nil {
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.closed.Load():
			return idem.ErrClosed
		case dropped(err):
			s.pool.Reset() // another ledger may be in this one's place
			return s.explain(err)
		case judge(err) == refused, time.Now().Add(pause).After(deadline):
			return s.explain(err)
		case !sleep(ctx, pause):
			return ctx.Err()
		}
	}
}

// keepTime notes the ledger's time now and then, while something is committed,
// and makes it go on where it stands: see noteTime. A note that is lost is made
// again.
func (s *Store) keepTime() {
	for sleep(s.ctx, time.Second) {
		ctx, cancel := s.bound(s.ctx)
		if s.busy.Swap(false) || s.clock.stands() {
			_ = s.noteTime(ctx)
		} else {
			_ = s.readClock(ctx)
		}
		cancel()
	}
}

// noteTime raises high to the ledger's time. Where the server's clock is behind
// high, because it was set back or the server is another one, the ledger's goes on
// from there: a clock that stands ends no lease.
func (s *Store) noteTime(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
		var ahead time.Duration
		var high idem.Instant
		var id [16]byte
		err := tx.QueryRow(ctx, s.sql(`UPDATE {schema}.clock SET high = greatest(high, `+wall+` + ahead), ahead = greatest(ahead, high - `+wall+`)
RETURNING ahead, high, (SELECT id FROM {schema}.ledger)`)).Scan(&ahead, &high, &id)
		if err != nil {
			return err
		}
		if err := s.same(id); err != nil {
			return err
		}
		s.clock.row(ahead, high)
		return nil
	})
}

// Close implements idem.Store. It waits for commits that are on their way, for
// Config.Patience at most; those that wait for their turn get ErrClosed.
func (s *Store) Close() error {
	s.closeOnce.Do(s.close)
	return nil
}

func (s *Store) close() {
	s.bell.mu.Lock() // nothing is begun in the background from now on
	s.closed.Store(true)
	s.bell.mu.Unlock()
	s.watchers.Close()
	s.lanes.close()
	s.cancel()
	s.wg.Wait()
	// What tells the time to those who come must not be before what was told.
	ctx, cancel := s.bound(context.Background())
	defer cancel()
	_ = s.noteTime(ctx) // without it the clock may go back by a second for them, and no more
	gone := make(chan struct{})
	go func() { defer close(gone); s.pool.Close() }()
	select {
	case <-gone:
	case <-ctx.Done(): // a server that does not answer is not waited for; what is left ends in 15 s
	}
}
