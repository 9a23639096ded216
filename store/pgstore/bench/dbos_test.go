package bench

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// durable is DBOS with one workflow of one step.
type durable struct{ ctx dbos.Context }

// newDurable launches DBOS on a database of its own. Its pool is the default of
// 20 connections, which is the fastest of 4, 8, 16, 20, 32 and 64 for 64 callers.
func newDurable(b *testing.B, database string) *durable {
	b.Helper()
	ctx, err := dbos.NewContext(context.Background(), dbos.Config{
		AppName: "bench", DatabaseURL: database,
		Logger: slog.New(slog.DiscardHandler), // writes nothing, also not about each workflow
	})
	if err != nil {
		b.Fatal(err)
	}
	dbos.RegisterWorkflow(ctx, createTicket)
	if err := dbos.Launch(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := dbos.Shutdown(ctx, 30*time.Second); err != nil {
			b.Error(err)
		}
	})
	return &durable{ctx}
}

func createTicket(ctx dbos.Context, _ string) (string, error) {
	return dbos.RunAsStep(ctx, func(context.Context) (string, error) { return string(callResult), nil }, dbos.WithStepName("create"))
}

func (d *durable) call(key string) error {
	handle, err := dbos.RunWorkflow(d.ctx, createTicket, string(callArgs), dbos.WithWorkflowID(key))
	if err != nil {
		return err
	}
	result, err := handle.GetResult()
	if err == nil && len(result) != len(callResult) {
		err = fmt.Errorf("workflow %s: %d bytes", key, len(result))
	}
	return err
}

func (d *durable) fresh(k *keys) side {
	return side{"dbos", func() error { return d.call(k.next()) }}
}
