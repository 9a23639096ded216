package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	idem "github.com/mcp-idem/mcp-idem"
)

// kit is a store with Must helpers.
type kit struct {
	*testing.T
	suite suite
	sub   Subject
	store idem.Store
}

func (k kit) ctx() context.Context { return k.Context() }

func (k kit) mustCommit(c idem.Change) idem.Stamp {
	k.Helper()
	stamp, err := k.store.Commit(k.ctx(), c)
	if err != nil {
		k.Fatalf("commit: %v", err)
	}
	return stamp
}

func (k kit) mustConflict(c idem.Change, why string) {
	k.Helper()
	_, err := k.store.Commit(k.ctx(), c)
	conflict, ok := errors.AsType[*idem.Conflict](err)
	if !ok {
		k.Fatalf("commit: error %v, want a conflict", err)
	}
	if conflict.Why != why {
		k.Fatalf("conflict over %q, want %q", conflict.Why, why)
	}
}

func (k kit) mustLoad(refs ...idem.Ref) idem.Snapshot {
	k.Helper()
	snap, err := k.store.Load(k.ctx(), refs...)
	if err != nil {
		k.Fatalf("load: %v", err)
	}
	return snap
}

func (k kit) mustRecord(id idem.ID) *idem.Record {
	k.Helper()
	r := k.mustLoad(op(id)).Operation(id)
	if r == nil {
		k.Fatalf("operation %s is missing", id)
	}
	return r
}

func (k kit) mustClock() idem.Instant {
	k.Helper()
	now, err := k.store.Clock(k.ctx())
	if err != nil {
		k.Fatalf("clock: %v", err)
	}
	return now
}

func (k kit) mustList(q idem.Query) idem.Page {
	k.Helper()
	p, err := k.store.List(k.ctx(), q)
	if err != nil {
		k.Fatalf("list: %v", err)
	}
	return p
}

// keys lists the keys of all pages.
func (k kit) keys(q idem.Query) []string {
	k.Helper()
	keys := []string{}
	for range 1000 {
		p := k.mustList(q)
		if q.Limit > 0 && len(p.Records) > q.Limit {
			k.Fatalf("a page of %d records, limit %d", len(p.Records), q.Limit)
		}
		for _, r := range p.Records {
			keys = append(keys, r.Key)
		}
		if p.Next == nil {
			return keys
		}
		q.After = p.Next
	}
	k.Fatal("the listing does not end")
	return nil
}

func (k kit) equal(got, want any) {
	k.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		k.Fatalf("differs (-want +got):\n%s", d)
	}
}

func num(n int) (id idem.ID) {
	// Spread as hashes are, in an order that is not that of n.
	binary.BigEndian.PutUint64(id[:], uint64(n)*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(id[12:], uint64(n))
	return id
}

func op(id idem.ID) idem.Ref { return idem.Ref{Kind: idem.KindOperation, ID: id} }

func ref(kind idem.Kind, n int) idem.Ref { return idem.Ref{Kind: kind, ID: num(n)} }

func put(id idem.ID, r *idem.Record) idem.Row { return idem.Row{Ref: op(id), Operation: r} }

func puts(rows ...idem.Row) idem.Change { return idem.Change{Puts: rows} }

func need(ref idem.Ref, v idem.Version) idem.Need { return idem.Need{Ref: ref, Version: v} }

// record is a planned operation; key tells it from others.
func record(key string) *idem.Record {
	return &idem.Record{
		Scope:  idem.Scope{Tenant: "acme", Tool: "tickets/create", Operation: "call"},
		Source: idem.SourceHost, Key: key, Generation: 1, State: idem.StatePlanned,
		Args: []byte(`{"n":9007199254740993}`), Task: "task",
	}
}

// started is an operation under a claim.
func started(key string, token idem.Token, end idem.Instant) *idem.Record {
	r := record(key)
	r.State = idem.StateStarted
	r.Lease = idem.Lease{Fence: 1, Token: token, End: end}
	r.Attempts = []idem.Attempt{{N: 1, Start: 1}}
	r.Last = 1
	return r
}

func within(t testing.TB, d time.Duration, what string, ch <-chan error) error {
	t.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(d):
		t.Fatalf("%s takes longer than %v", what, d)
		return nil
	}
}
