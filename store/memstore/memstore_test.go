package memstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/store/memstore"
	"github.com/mcp-idem/mcp-idem/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Run("machine clock", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			s := memstore.New(memstore.Config{})
			t.Cleanup(func() { _ = s.Close() })
			return storetest.Subject{Store: s}
		}, storetest.Features{Moves: true})
	})
	t.Run("injected clock", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Subject {
			var mu sync.Mutex
			now := time.Unix(1_700_000_000, 0)
			s := memstore.New(memstore.Config{Now: func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return now
			}})
			t.Cleanup(func() { _ = s.Close() })
			return storetest.Subject{Store: s, Advance: func(d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(d)
			}}
		}, storetest.Features{Clock: true, Moves: true})
	})
}
