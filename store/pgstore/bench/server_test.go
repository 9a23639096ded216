package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// database makes an empty database.
func database(b *testing.B) string {
	b.Helper()
	ctx := context.Background()
	base := os.Getenv("BENCH_SERVER")
	c, err := pgx.Connect(ctx, base+"/postgres")
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(ctx)
	name := fmt.Sprintf("bench_%d", time.Now().UnixNano())
	if _, err := c.Exec(ctx, "create database "+name); err != nil {
		b.Fatal(err)
	}
	return base + "/" + name
}
