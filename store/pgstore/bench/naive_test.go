package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// naive is the table that one writes first. Arguments and result are bytes, not
// jsonb, which costs more and does not give them back as they were.
type naive struct{ pool *pgxpool.Pool }

const naiveSchema = `
	create table calls (
		key          text primary key,
		request_hash bytea not null,
		state        text not null,
		args         bytea not null,
		result       bytea,
		created_at   timestamptz not null default now(),
		updated_at   timestamptz not null default now()
	);
	create index calls_unfinished on calls (created_at) where state = 'started'`

// naiveConns: of 4, 8, 16, 20, 32 and 64 connections the fastest for 64 callers.
const naiveConns = 20

func newNaive(b *testing.B, url string) *naive {
	b.Helper()
	ctx := context.Background()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = naiveConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(ctx, naiveSchema); err != nil {
		b.Fatal(err)
	}
	return &naive{pool}
}

// call claims the key, has the effect and writes down the result.
func (n *naive) call(key string) error {
	ctx := context.Background()
	hash := sha256.Sum256(callArgs)
	tag, err := n.pool.Exec(ctx, `insert into calls (key, request_hash, state, args)
		values ($1, $2, 'started', $3) on conflict do nothing`, key, hash[:], callArgs)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("key %s: not claimed", key)
	}
	tag, err = n.pool.Exec(ctx, `update calls set state = 'done', result = $2, updated_at = now() where key = $1`, key, callResult)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("key %s: not recorded", key)
	}
	return err
}

func (n *naive) fresh(k *keys) side {
	return side{"naive", func() error { return n.call(k.next()) }}
}

// read is one indexed read of a settled call: what a replay needs at least.
func (n *naive) read(key string) error {
	var hash, result []byte
	var state string
	err := n.pool.QueryRow(context.Background(), `select request_hash, state, result from calls where key = $1`, key).Scan(&hash, &state, &result)
	if err == nil && (state != "done" || len(result) != len(callResult)) {
		err = fmt.Errorf("key %s: %s with %d bytes", key, state, len(result))
	}
	return err
}
