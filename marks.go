package idem

import (
	"slices"
	"sync"
	"time"
)

// markDelay is the longest that a delivery mark waits for a commit to ride in.
// A lost mark means one replay too many, which is the safe side.
const markDelay = time.Second

// marker collects monotone marks until they ride in a commit of any kind, or
// for markDelay.
type marker struct {
	commit func([]Mark) error

	mu      sync.Mutex
	queued  []Mark
	overlay map[ID]*Delivered // delivered, and not known to be durable
	pending map[ID]int        // marks of a row that are queued or on their way
	timer   *time.Timer
	closed  bool // nothing waits for a later commit
}

// deliver queues marks of delivered outcomes; they count at once.
func (m *marker) deliver(marks []mark) {
	if len(marks) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.overlay == nil {
		m.overlay, m.pending = map[ID]*Delivered{}, map[ID]int{}
	}
	for _, k := range marks {
		d := m.overlay[k.row]
		if d == nil {
			d = &Delivered{}
			m.overlay[k.row] = d
		}
		if d.Has(k.n) {
			continue
		}
		d.Add(k.n)
		one := &Delivered{}
		one.Add(k.n)
		m.pending[k.row]++
		m.queue(Mark{Ref: Ref{KindDelivery, k.row}, Delivered: one})
	}
}

func (m *marker) queue(k Mark) {
	m.queued = append(m.queued, k)
	if m.timer == nil && !m.closed {
		m.timer = time.AfterFunc(markDelay, m.flush)
	}
}

// known is what this process knows of a run beyond the ledger. Read it before
// the snapshot: then no mark is missed between the two.
func (m *marker) known(row ID) *Delivered {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.overlay[row]
	if d == nil {
		return nil
	}
	c := &Delivered{}
	c.Merge(d)
	return c
}

// take hands all that is queued to a commit.
func (m *marker) take() []Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queued
	m.queued = nil
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	return q
}

// done says what became of marks that were taken.
func (m *marker) done(marks []Mark, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range marks {
		if err != nil {
			m.queue(k)
			continue
		}
		if k.Delivered == nil {
			continue
		}
		if m.pending[k.Ref.ID]--; m.pending[k.Ref.ID] == 0 {
			delete(m.pending, k.Ref.ID)
			delete(m.overlay, k.Ref.ID)
		}
	}
}

// close writes what is queued; what cannot be written now is lost.
func (m *marker) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.flush()
}

func (m *marker) flush() {
	if marks := m.take(); len(marks) > 0 {
		m.done(marks, m.commit(marks))
	}
}

// Conn registers a client's connection.
func (g *Guard) Conn() *Conn { return &Conn{confirm: g.marks.deliver, answered: map[ID]struct{}{}} }

// Heard tells the guard that the client sent something on the connection: what
// was written before has arrived. Call it for every message before Do, except
// for one that cancels a request: it may be the client's reply to an answer that
// it threw away.
func (c *Conn) Heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var arrived []mark
	c.pending = slices.DeleteFunc(c.pending, func(h *handed) bool {
		h.heard, h.heardAt = true, time.Now()
		if h.written && h.mark.n > 0 {
			arrived = append(arrived, h.mark)
		}
		return h.written
	})
	c.confirm(arrived) // before others can see that it is not pending any more
}

// answeredLimit bounds how many call ids a connection remembers.
const answeredLimit = 4096

// hand notes that an answer leaves on the connection.
func (c *Conn) hand(k mark, aliases []ID) (done func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &handed{mark: k, aliases: aliases}
	c.pending = append(c.pending, h)
	if len(c.answered)+len(aliases) > answeredLimit {
		clear(c.answered)
	}
	for _, a := range aliases {
		c.answered[a] = struct{}{}
	}
	return func(err error) { c.settle(h, err) }
}

// A quick client's next message is often read before the write of the answer that
// it follows has returned. So what is heard up to overlap before that counts as
// heard after it, unless the client cancels within the time of reconsider: that it
// lives says as much a moment before as a moment after.
const (
	overlap    = 20 * time.Millisecond
	reconsider = 100 * time.Millisecond
)

// arrived takes an answer off the list that was neither cancelled nor confirmed.
func (c *Conn) arrived(h *handed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.pending, h); at >= 0 {
		c.pending = slices.Delete(c.pending, at, at+1)
		if h.mark.n > 0 {
			c.confirm([]mark{h.mark})
		}
	}
}

// settle says what became of an answer that left. One that was taken back, or
// has arrived, stays so.
func (c *Conn) settle(h *handed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.pending, h)
	switch {
	case at < 0:
	case err == nil: // what was heard meanwhile may have been sent before
		h.written = true
		if h.heard && time.Since(h.heardAt) < overlap {
			time.AfterFunc(reconsider, func() { c.arrived(h) })
		}
	default:
		c.pending = slices.Delete(c.pending, at, at+1)
		for _, a := range h.aliases {
			delete(c.answered, a)
		}
	}
}

// delivered is what an ask on this connection has to know of a run beyond the
// ledger: what counts for all, and what is on its way to this client, who has
// sent something since. Read it before the snapshot.
func (c *Conn) delivered(m *marker, row ID) *Delivered {
	var own []uint64
	if c != nil {
		c.mu.Lock()
		for _, h := range c.pending {
			if h.heard && h.mark.n > 0 && h.mark.row == row {
				own = append(own, h.mark.n)
			}
		}
		c.mu.Unlock()
	}
	d := m.known(row)
	if d == nil && len(own) > 0 {
		d = &Delivered{}
	}
	for _, n := range own {
		d.Add(n)
	}
	return d
}

// skip lists which of these call ids had their answer on this connection.
func (c *Conn) skip(aliases []ID) map[ID]struct{} {
	if c == nil || len(aliases) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var s map[ID]struct{}
	for _, a := range aliases {
		if _, ok := c.answered[a]; ok {
			if s == nil {
				s = map[ID]struct{}{}
			}
			s[a] = struct{}{}
		}
	}
	return s
}
