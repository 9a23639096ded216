package boltstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Client is an idem.Store that another process keeps. Safe for concurrent use.
//
// A call that is not answered within two seconds is ErrNoHolder, and a Commit
// that may have reached the holder is ErrCommitUnknown as well; Watch waits as
// long as its context. A lost connection is made anew by the next call.
type Client struct {
	path string // of the ledger, resolved

	mu     sync.Mutex
	s      *session // nil: not connected
	closed bool
}

var _ idem.Store = (*Client)(nil)

// Dial connects to the process that holds the ledger at path. ErrNoHolder:
// there is none, or it does not answer.
func Dial(path string) (idem.Store, error) {
	c, err := dialClient(path)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func dialClient(path string) (*Client, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	c := &Client{path: path}
	if _, err := c.session(); err != nil {
		return nil, err
	}
	return c, nil
}

// session returns a live connection.
func (c *Client) session() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, idem.ErrClosed
	case c.s != nil && c.s.alive():
		return c.s, nil
	}
	s, err := connect(c.path)
	if err != nil {
		return nil, err
	}
	c.s = s
	return s, nil
}

// unary asks for one answer. sent: the holder may have got the request.
func (c *Client) unary(ctx context.Context, m method, in, out any) (sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s, err := c.session()
	if err != nil {
		return false, err
	}
	body, sent, err := s.roundTrip(ctx, m, in)
	if err != nil {
		// A holder that is closing did nothing and is about to be gone.
		if !c.isClosed() && errors.Is(err, idem.ErrClosed) {
			s.fail(err)
			err = fmt.Errorf("%w: %s: it is closing", ErrNoHolder, c.path)
			sent = false
		}
		return sent, err
	}
	if out == nil {
		return true, nil
	}
	return true, codec.Unmarshal(body, out)
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Load implements idem.Store.
func (c *Client) Load(ctx context.Context, refs ...idem.Ref) (idem.Snapshot, error) {
	var s idem.Snapshot
	on := c.current()
	if _, err := c.unary(ctx, methodLoad, refs, &s); err != nil {
		return idem.Snapshot{}, err
	}
	c.read(on, s.Now)
	versions(s)
	return s, nil
}

// Commit implements idem.Store.
func (c *Client) Commit(ctx context.Context, change idem.Change) (idem.Stamp, error) {
	for i := range change.Puts {
		if err := codec.Check(&change.Puts[i]); err != nil {
			return idem.Stamp{}, err
		}
	}
	var stamp idem.Stamp
	on := c.current()
	sent, err := c.unary(ctx, methodCommit, change, &stamp)
	if err == nil {
		c.read(on, stamp.Time)
		return stamp, nil
	}
	// Whatever is not the holder's own word leaves the outcome open.
	_, own := errors.AsType[*remoteError](err)
	_, conflict := errors.AsType[*idem.Conflict](err)
	if sent && !own && !conflict {
		err = fmt.Errorf("%w: %w", idem.ErrCommitUnknown, err)
	}
	return idem.Stamp{}, err
}

// List implements idem.Store.
func (c *Client) List(ctx context.Context, q idem.Query) (idem.Page, error) {
	var b pageBody
	if _, err := c.unary(ctx, methodList, q, &b); err != nil {
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
	s, err := c.session()
	if err != nil {
		return 0, err
	}
	if now, ok := s.tell(); ok {
		return now, nil
	}
	_, err = c.unary(ctx, methodClock, nil, &now)
	c.read(s, now)
	return now, err
}

// read notes the holder's time, if it came on that session.
func (c *Client) read(s *session, now idem.Instant) {
	c.mu.Lock()
	same := c.s == s
	c.mu.Unlock()
	if same && s != nil {
		s.note(now)
	}
}

// current is the connection there is.
func (c *Client) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s
}

// Watch implements idem.Store. It returns nil when the connection is lost: the
// caller loads again, and learns from that whether there is a holder.
func (c *Client) Watch(ctx context.Context, id idem.ID, after idem.Version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := c.session()
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
	defer c.mu.Unlock()
	c.closed = true
	if c.s != nil {
		c.s.fail(idem.ErrClosed)
	}
	return nil
}
