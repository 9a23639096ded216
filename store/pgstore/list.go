package pgstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/codec"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// pageBytes ends a page early.
	pageBytes = 8 << 20

	timeSize = 8
	idSize   = len(idem.ID{})
)

// listing is a query for a page of operations, in the order of (at, id).
type listing struct {
	from  string // yields at, id, version, lease_end and body
	args  []any
	timed bool // at is part of the cursor
	limit int
}

// newListing translates a query. Every part of from ends its scan of an index
// after as many rows as a page may have, and one.
func newListing(q *idem.Query) (*listing, error) {
	l := &listing{limit: min(q.Limit, maxLimit), timed: q.Order == idem.ByDue || q.Order == idem.ByTask}
	if l.limit <= 0 {
		l.limit = defaultLimit
	}
	at, id, err := l.cursor(q.After)
	if err != nil {
		return nil, err
	}
	const columns = `id, version, lease_end, body FROM {schema}.operation WHERE version > 0 AND `
	switch q.Order {
	case idem.ByID:
		l.from = `SELECT 0::bigint AS at, ` + columns + `id > $2 AND ($3 = '' OR tenant = $3) ORDER BY id LIMIT $1`
		l.args = []any{id, name(q.Tenant)}
	case idem.ByState:
		l.from = `SELECT 0::bigint AS at, ` + columns + `state = $4 AND id > $2 AND ($3 = '' OR tenant = $3) ORDER BY id LIMIT $1`
		l.args = []any{id, name(q.Tenant), name(string(q.State))}
		if q.State != idem.StateCommitted { // so that a generic plan can use the index that leaves those out
			l.from = `SELECT 0::bigint AS at, ` + columns + `state = $4 AND state <> 'COMMITTED' AND id > $2 AND ($3 = '' OR tenant = $3) ORDER BY id LIMIT $1`
		}
	case idem.ByTask:
		l.from = `SELECT created AS at, ` + columns + `tenant = $2 AND task = $3 AND task <> '' AND (created, id) > ($4, $5) ORDER BY created, id LIMIT $1`
		l.args = []any{name(q.Tenant), name(q.Task), at, id}
	case idem.ByDue:
		const mine = `tenant = $2 AND server = $3 AND `
		l.from = `SELECT * FROM (
  (SELECT due AS at, ` + columns + mine + `due IS NOT NULL AND due <= $6 AND (due, id) > ($4, $5) ORDER BY due, id LIMIT $1)
  UNION ALL
  (SELECT lease_end, ` + columns + mine + `state = 'STARTED' AND lease_end <> 0 AND lease_end <= $6 AND (lease_end, id) > ($4, $5) ORDER BY lease_end, id LIMIT $1)
 ) u ORDER BY at, id LIMIT $1`
		l.args = []any{name(q.Tenant), name(q.Server), at, id, int64(q.Until)}
	default:
		return nil, fmt.Errorf("list: unknown order %d", q.Order)
	}
	l.args = append([]any{l.limit + 1}, l.args...)
	return l, nil
}

// cursor reads Query.After: the at and the id of the last record before.
func (l *listing) cursor(after []byte) (at int64, id []byte, err error) {
	width := idSize
	if l.timed {
		width += timeSize
	}
	switch len(after) {
	case 0:
		return math.MinInt64, []byte{}, nil
	case width:
	default:
		return 0, nil, fmt.Errorf("list: a cursor of %d bytes is not of this order", len(after))
	}
	if l.timed {
		at, after = int64(binary.BigEndian.Uint64(after)), after[timeSize:]
	}
	return at, after, nil
}

func (l *listing) next(at int64, id []byte) []byte {
	if !l.timed {
		return id
	}
	return append(binary.BigEndian.AppendUint64(nil, uint64(at)), id...)
}

// text leaves the bodies away that do not fit the page: the first one tells that
// another page follows.
func (l *listing) text() string {
	return `SELECT c.now, r.at, r.id, r.version, r.lease_end, CASE WHEN r.n <= ` + fmt.Sprint(l.limit) + ` AND (r.n = 1 OR r.size <= ` + fmt.Sprint(pageBytes) + `) THEN r.body END
FROM (SELECT ` + moment + ` AS now) c LEFT JOIN (
 SELECT *, row_number() OVER w AS n, sum(length(body)) OVER w AS size FROM (` + l.from + `) p WINDOW w AS (ORDER BY at, id)
) r ON true ORDER BY r.n`
}

// List implements idem.Store. A page holds at most 1000 records and about 8 MiB.
func (s *Store) List(ctx context.Context, q idem.Query) (idem.Page, error) {
	if err := s.ready(ctx); err != nil {
		return idem.Page{}, err
	}
	l, err := newListing(&q)
	if err != nil {
		return idem.Page{}, err
	}
	var page idem.Page
	err = s.read(ctx, func(ctx context.Context) error {
		page, err = s.page(ctx, l)
		return err
	})
	if err != nil {
		return idem.Page{}, err
	}
	return page, nil
}

func (s *Store) page(ctx context.Context, l *listing) (page idem.Page, err error) {
	sent := time.Now()
	rows, err := s.pool.Query(ctx, s.sql(l.text()), l.args...)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	var last []byte
	for rows.Next() {
		var at, version, leaseEnd *int64
		var id, body []byte
		if err := rows.Scan(&page.Now, &at, &id, &version, &leaseEnd, &body); err != nil {
			return page, err
		}
		if version == nil { // there are no rows
			continue
		}
		if body == nil {
			page.Next = last
			continue
		}
		row, err := opener(codec.Open).operation(id, idem.Version(*version), idem.Instant(*leaseEnd), body)
		if err != nil {
			return page, err
		}
		page.Records = append(page.Records, row.Operation)
		last = l.next(*at, id)
	}
	if err := rows.Err(); err != nil {
		return page, err
	}
	page.Now = s.clock.ledger(page.Now, sent)
	return page, nil
}
