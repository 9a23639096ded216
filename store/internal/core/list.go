package core

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

// Source is what listing needs of a store's snapshot.
type Source interface {
	Tx
	// Ascend calls fn with every key of the index that begins with prefix and is
	// greater than after, in order, until fn returns false.
	Ascend(ix Index, prefix, after []byte, fn func(key []byte) (bool, error)) error
}

const (
	defaultLimit = 100
	maxLimit     = 1000
	// pageBytes ends a page early, so that it fits a frame of the socket.
	pageBytes = 8 << 20
)

// List pages through operations. A cursor is an index key less its prefix.
func List(ctx context.Context, src Source, q *idem.Query, leases *Leases) (idem.Page, error) {
	page, _, err := ListIDs(ctx, src, q, leases)
	return page, err
}

// ListIDs also returns the ids of the page's records, which they do not carry.
func ListIDs(ctx context.Context, src Source, q *idem.Query, leases *Leases) (idem.Page, []idem.ID, error) {
	l, err := newListing(src, q, leases)
	if err != nil {
		return idem.Page{}, nil, err
	}
	if err := l.collectStarted(); err != nil {
		return idem.Page{}, nil, err
	}
	steps := 0
	err = src.Ascend(l.index, l.prefix, append(bytes.Clone(l.prefix), q.After...), func(key []byte) (bool, error) {
		if steps++; steps%256 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		return l.visit(key)
	})
	if err != nil {
		return idem.Page{}, nil, err
	}
	l.emitStarted(nil)
	return l.page, l.ids, nil
}

type listing struct {
	src    Source
	q      *idem.Query
	leases *Leases
	index  Index
	prefix []byte
	limit  int

	page    idem.Page
	ids     []idem.ID // of the page's records
	bytes   int
	last    []byte // cursor of the last record of the page
	full    bool
	started []entry // ByDue: records that are not in its index, by cursor
}

type entry struct {
	cursor []byte
	rec    *idem.Record
	size   int
}

func newListing(src Source, q *idem.Query, leases *Leases) (*listing, error) {
	l := &listing{src: src, q: q, leases: leases, limit: min(q.Limit, maxLimit)}
	if l.limit <= 0 {
		l.limit = defaultLimit
	}
	width := idSize
	switch q.Order {
	case idem.ByID:
		l.index = IndexID
	case idem.ByDue:
		l.index, l.prefix, width = IndexDue, hash("due", q.Tenant, q.Server), timeSize+idSize
	case idem.ByState:
		if q.State != idem.StateCommitted {
			l.index, l.prefix = IndexState, hash("state", string(q.State))
		}
	case idem.ByTask:
		l.index, l.prefix, width = IndexTask, hash("task", q.Tenant, q.Task), timeSize+idSize
	default:
		return nil, fmt.Errorf("list: unknown order %d", q.Order)
	}
	if len(q.After) != 0 && len(q.After) != width {
		return nil, fmt.Errorf("list: a cursor of %d bytes is not of this order", len(q.After))
	}
	return l, nil
}

func (l *listing) matches(r *idem.Record) bool {
	switch l.q.Order {
	case idem.ByDue:
		due := r.Due()
		return r.Scope.Tenant == l.q.Tenant && r.Server() == l.q.Server && due != 0 && due <= l.q.Until
	case idem.ByState:
		return r.State == l.q.State && (l.q.Tenant == "" || r.Scope.Tenant == l.q.Tenant)
	case idem.ByTask:
		return r.Task != "" && r.Scope.Tenant == l.q.Tenant && r.Task == l.q.Task
	}
	return l.q.Tenant == "" || r.Scope.Tenant == l.q.Tenant
}

// load reads the record that an index key names, with its extended lease.
func (l *listing) load(key []byte) (rec *idem.Record, size int, err error) {
	ref := idem.Ref{Kind: idem.KindOperation, ID: IDOf(key)}
	b, err := l.src.Get(ref)
	if err != nil {
		return nil, 0, err
	}
	if b == nil {
		return nil, 0, fmt.Errorf("%w: an index names operation %s, which is not there", codec.ErrMalformed, ref.ID)
	}
	row, err := codec.Open(ref, b)
	if err != nil {
		return nil, 0, err
	}
	l.leases.Overlay(ref.ID, row.Operation)
	return row.Operation, len(b), nil
}

// collectStarted finds those that the index of what is due leaves out.
func (l *listing) collectStarted() error {
	if l.q.Order != idem.ByDue {
		return nil
	}
	prefix := hash("state", string(idem.StateStarted))
	err := l.src.Ascend(IndexState, prefix, prefix, func(key []byte) (bool, error) {
		rec, size, err := l.load(key)
		if err != nil || !l.matches(rec) {
			return err == nil, err
		}
		id := IDOf(key)
		if cursor := append(moment(rec.Due()), id[:]...); bytes.Compare(cursor, l.q.After) > 0 {
			l.started = append(l.started, entry{cursor, rec, size})
		}
		return true, nil
	})
	slices.SortFunc(l.started, func(a, b entry) int { return bytes.Compare(a.cursor, b.cursor) })
	return err
}

// emitStarted adds those that come before the cursor; nil: all.
func (l *listing) emitStarted(before []byte) {
	for len(l.started) > 0 && !l.full && (before == nil || bytes.Compare(l.started[0].cursor, before) < 0) {
		l.emit(l.started[0])
		l.started = l.started[1:]
	}
}

func (l *listing) visit(key []byte) (more bool, err error) {
	cursor := key[len(l.prefix):]
	if l.q.Order == idem.ByDue && bytes.Compare(cursor[:timeSize], moment(l.q.Until)) > 0 {
		return false, nil
	}
	rec, size, err := l.load(key)
	if err != nil || !l.matches(rec) {
		return err == nil, err
	}
	l.emitStarted(cursor)
	if !l.full {
		l.emit(entry{bytes.Clone(cursor), rec, size})
	}
	return !l.full, nil
}

// emit adds a record, or finds that the page is full and another one follows.
func (l *listing) emit(e entry) {
	n := len(l.page.Records)
	if n >= l.limit || (n > 0 && l.bytes+e.size > pageBytes) {
		l.full, l.page.Next = true, l.last
		return
	}
	l.page.Records = append(l.page.Records, e.rec)
	l.ids = append(l.ids, IDOf(e.cursor))
	l.bytes += e.size
	l.last = e.cursor
}
