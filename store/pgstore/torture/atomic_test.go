package torture

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/pgstore"
)

// bookings are the effects of tools that work in the ledger's own transaction.
const bookings = `CREATE TABLE IF NOT EXISTS public.bookings (id bigserial PRIMARY KEY, run text NOT NULL, key text NOT NULL, name text NOT NULL)`

// book is such an effect. What becomes of it is drawn as the shop draws.
func (h *host) book(st *pgstore.Store, name string) idem.Effect {
	s := &shop{seed: h.Seed}
	e := st.Effect(func(ctx context.Context, tx pgx.Tx, d idem.Dispatch) (idem.Outcome, error) {
		attempt := fmt.Sprint(d.Attempt)
		f := s.fate(d.Key, attempt)
		switch f {
		case throttled:
			return idem.Outcome{Class: idem.ClassThrottled}, nil
		case rejected:
			return idem.Outcome{Class: idem.ClassRejected}, nil
		case failed:
			return idem.Outcome{Class: idem.ClassAmbiguous}, errors.New("it fails")
		}
		booked := effect{Key: d.Key, Name: name}
		var id int64
		if err := tx.QueryRow(ctx, `INSERT INTO public.bookings (run, key, name) VALUES ($1, $2, $3) RETURNING id`,
			fmt.Sprint(h.Seed), d.Key, name).Scan(&id); err != nil {
			return idem.Outcome{}, err
		}
		booked.ID = fmt.Sprint("B", id)
		time.Sleep(time.Duration(s.draw("work", d.Key, attempt) % uint64(2*h.Lease)))
		if f == lied { // what was written is not wanted
			return idem.Outcome{Class: idem.ClassThrottled}, nil
		}
		return idem.Outcome{Class: idem.ClassSuccess, Result: booked.receipt(), Kind: idem.ResultValue, ExternalID: booked.ID}, nil
	})
	return h.rec.atomic(e)
}

// atomic writes down the commits of an effect that commits with its outcome. A
// transaction that was begun anew was rolled back before.
func (r *recorder) atomic(e idem.Effect) idem.Effect {
	return idem.Effect{Atomic: func(ctx context.Context, d idem.Dispatch, decide idem.Decide) error {
		var n int64
		err := e.Atomic(ctx, d, func(o idem.Outcome, err error) (idem.Change, error) {
			if n != 0 {
				r.returned(n, idem.Stamp{}, errors.New("rolled back"))
				n = 0
			}
			c, err := decide(o, err)
			if err == nil {
				n = r.called(&c)
			}
			return c, err
		})
		if n != 0 {
			r.returned(n, idem.Stamp{}, err)
		}
		return err
	}}
}

// booked reads a run's bookings.
func booked(t *testing.T, url string, seed uint64) (all []effect) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { must(t, conn.Close(context.Background())) }()
	rows, err := conn.Query(t.Context(), `SELECT 'B' || id, key, name FROM public.bookings WHERE run = $1 ORDER BY id`, fmt.Sprint(seed))
	must(t, err)
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e effect, err error) {
		return e, row.Scan(&e.ID, &e.Key, &e.Name)
	})
	must(t, err)
	return all
}

// whole returns what is wrong with effects that commit with their outcomes:
//
//  8. no outcome is unknown: there is an effect, or it is known that there is none.
func whole(records []*idem.Record, effects []effect) (bad []string) {
	n := map[string]int{}
	for _, e := range effects {
		n[e.Key]++
	}
	for _, r := range records {
		applied := r.State == idem.StateCommitted
		absent := r.State == idem.StateFailedRetryable || r.State == idem.StateFailedFinal
		if applied != (n[r.Op.String()] == 1) || absent != (n[r.Op.String()] == 0) {
			bad = append(bad, fmt.Sprintf("%d effects: %s", n[r.Op.String()], show(r)))
		}
	}
	return bad
}
