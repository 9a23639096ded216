package boltstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Client is an idem.Store that another process keeps. Safe for concurrent use.
//
// A call that is not answered within two seconds is ErrNoHolder, and a Commit
// that may have reached the holder is ErrCommitUnknown as well; Watch waits as
// long as its context. A holder that finds a request when its client has given it
// up does nothing. A lost connection is made anew by the next call.
type Client struct {
	path string // of the ledger, resolved

	mu     sync.Mutex
	s      *session // nil: not connected
	dial   *dialing // nil: nobody connects
	closed bool
}

var _ idem.Store = (*Client)(nil)

// dialing is a connection being made, for all who wait for it.
type dialing struct {
	done chan struct{}
	s    *session
	err  error
}

// Dial connects to the process that holds the ledger at path. ErrNoHolder:
// there is none, or it does not answer.
func Dial(path string) (idem.Store, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	c := &Client{path: path}
	if _, err := c.session(context.Background()); err != nil {
		return nil, err
	}
	return c, nil
}

// session returns a live connection.
func (c *Client) session(ctx context.Context) (*session, error) {
	c.mu.Lock()
	switch {
	case c.closed:
		c.mu.Unlock()
		return nil, idem.ErrClosed
	case c.s != nil && c.s.usable():
		defer c.mu.Unlock()
		return c.s, nil
	}
	d := c.dial
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		c.dial = d
		go c.connect(d)
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.s, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) connect(d *dialing) {
	defer close(d.done)
	d.s, d.err = connect(c.path)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dial = nil
	switch {
	case d.err != nil:
	case c.closed:
		_ = d.s.fail(idem.ErrClosed)
		d.err = idem.ErrClosed
	default:
		c.s = d.s
	}
}

// unary asks for one answer, on a session that it returns where there is one.
// sent: the holder may have done what was asked for, and did not say so.
func (c *Client) unary(ctx context.Context, m method, in, out any) (s *session, sent bool, err error) {
	begin := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if s, err = c.session(ctx); err != nil {
		return nil, false, err
	}
	body, sent, err := s.roundTrip(ctx, m, in, begin)
	if _, own := errors.AsType[*remoteError](err); own {
		switch {
		case errors.Is(err, idem.ErrClosed):
			s.retire()
			err = fmt.Errorf("%w: %s", errClosing, c.path)
		case errors.Is(err, errLate):
			s.retire() // the next connection is told the time anew
		}
		return s, false, err
	}
	if err != nil || out == nil {
		return s, sent, err
	}
	return s, true, codec.Unmarshal(body, out)
}

// told is the ledger's time by the holder that was connected last; 0: there was
// none.
func (c *Client) told() idem.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s == nil {
		return 0
	}
	now, _ := c.s.tell()
	return now
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Load implements idem.Store.
func (c *Client) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	var snap idem.Snapshot
	s, _, err := c.unary(ctx, methodLoad, refs, &snap)
	if err != nil {
		return idem.Snapshot{}, err
	}
	s.note(snap.Now)
	versions(snap)
	return snap, nil
}

// Commit implements idem.Store.
func (c *Client) Commit(ctx context.Context, change idem.Change) (idem.Stamp, error) {
	for i := range change.Puts {
		if err := codec.Check(&change.Puts[i]); err != nil {
			return idem.Stamp{}, err
		}
	}
	var stamp idem.Stamp
	s, sent, err := c.unary(ctx, methodCommit, change, &stamp)
	if err == nil {
		s.note(stamp.Time)
		return stamp, nil
	}
	// Whatever is not the holder's own word leaves the outcome open.
	if _, conflict := errors.AsType[*idem.Conflict](err); sent && !conflict {
		err = fmt.Errorf("%w: %w", idem.ErrCommitUnknown, err)
	}
	return idem.Stamp{}, err
}

// List implements idem.Store.
func (c *Client) List(ctx context.Context, q idem.Query) (idem.Page, error) {
	var b pageBody
	if _, _, err := c.unary(ctx, methodList, q, &b); err != nil {
		return idem.Page{}, err
	}
	return b.in()
}

// Clock implements idem.Store. Where the holder has told the time within the last
// second, it is told from that.
func (c *Client) Clock(ctx context.Context) (now idem.Instant, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s, err := c.session(ctx)
	if err != nil {
		return 0, err
	}
	if now, ok := s.tell(); ok {
		return now, nil
	}
	if s, _, err = c.unary(ctx, methodClock, nil, &now); err != nil {
		return 0, err
	}
	s.note(now)
	return now, nil
}

// Watch implements idem.Store. It returns nil when the connection is lost: the
// caller loads again, and learns from that whether there is a holder.
func (c *Client) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	err = s.watch(ctx, watchBody{ID: id, After: after})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case c.isClosed():
		return idem.ErrClosed
	case errors.Is(err, ErrNoHolder), errors.Is(err, idem.ErrClosed):
		return nil
	}
	return err
}

// Close implements idem.Store. It ends the connection, not the holder.
func (c *Client) Close() error {
	c.mu.Lock()
	d := c.dial
	c.closed = true
	if c.s != nil {
		_ = c.s.fail(idem.ErrClosed)
	}
	c.mu.Unlock()
	if d != nil {
		<-d.done
	}
	return nil
}
