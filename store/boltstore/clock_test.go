package boltstore_test

import (
	"path/filepath"
	"testing"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

// TestClientClock: between two readings a process that shares the ledger tells
// the holder's time by itself, never ahead of it and never back, and it keeps up.
func TestClientClock(t *testing.T) {
	holder, err := boltstore.Open(boltstore.Config{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	client, err := boltstore.Dial(holder.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var before idem.Instant
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		past, err := holder.Clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told, err := client.Clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after, err := holder.Clock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case told > after:
			t.Fatalf("%s ahead", told.Sub(after))
		case told < before:
			t.Fatalf("%s back", before.Sub(told))
		case past.Sub(told) > time.Second:
			t.Fatalf("%s behind", past.Sub(told))
		}
		before = told
	}
}
