package torture

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// shop is the outside system. It enforces no key: every call that it carries out
// is an effect. What it does with a call is drawn from the call itself.
type shop struct {
	socket string
	seed   uint64
	asked  time.Duration // how long a query takes

	mu      sync.Mutex
	effects []effect
	queries map[string]int // by key
	working sync.WaitGroup
}

// effect is one effect, and the call that had it.
type effect struct {
	ID, Key, Name, Attempt, Host string
	At                           moment
}

// receipt is what the shop says about an effect.
func (e effect) receipt() []byte {
	return fmt.Appendf(nil, `{"id":%q,"name":%q}`, e.ID, e.Name)
}

func openShop(t testing.TB, seed uint64) *shop {
	t.Helper()
	s := &shop{socket: filepath.Join(t.TempDir(), "shop"), seed: seed, queries: map[string]int{}}
	l, err := net.Listen("unix", s.socket)
	must(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.order)
	mux.HandleFunc("GET /orders", s.find)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// fate is what becomes of a call.
type fate int

const (
	served   fate = iota // the effect, then the answer
	severed              // the effect, then the connection breaks
	blind                // the connection breaks, then the effect
	vanished             // the connection breaks, and no effect
	throttled
	rejected
	failed // the tool says that it failed, and it did
	lied   // it says so, and it did not
)

var fates = []struct {
	fate    fate
	percent uint64
}{{served, 52}, {severed, 10}, {blind, 10}, {vanished, 8}, {throttled, 8}, {rejected, 4}, {failed, 4}, {lied, 4}}

// draw is a number that depends on the seed and the words alone.
func (s *shop) draw(words ...string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, s.seed, words)
	n := h.Sum64()
	return n ^ n>>29
}

func (s *shop) fate(key, attempt string) fate {
	n := s.draw("fate", key, attempt) % 100
	for _, f := range fates {
		if n < f.percent {
			return f.fate
		}
		n -= f.percent
	}
	return served
}

// order carries out a call. It works on it for bound at most.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	got := now()
	s.working.Add(1)
	defer s.working.Done()
	q := r.URL.Query()
	key, attempt := q.Get("key"), q.Get("attempt")
	f := s.fate(key, attempt)
	work := time.Duration(s.draw("work", key, attempt) % uint64(bound*3/4))
	after := time.Duration(s.draw("after", key, attempt) % uint64(time.Second))
	if s.draw("patience", key, attempt)%10 < 6 { // others take longer than a lease
		after /= 50
	}
	apply := func() (effect, bool) {
		time.Sleep(work)
		e := effect{Key: key, Name: q.Get("name"), Attempt: attempt, Host: q.Get("host"), At: now()}
		if e.At.sub(got) > bound {
			return e, false
		}
		return s.add(e), true
	}
	switch f {
	case throttled:
		http.Error(w, "later", http.StatusTooManyRequests)
	case rejected:
		http.Error(w, "never", http.StatusUnprocessableEntity)
	case failed:
		time.Sleep(work)
		_, _ = w.Write([]byte(failure))
	case vanished:
		hangUp(w)
	case blind:
		hangUp(w)
		apply()
	default:
		e, ok := apply()
		time.Sleep(after)
		switch {
		case !ok:
			http.Error(w, "too slow", http.StatusTooManyRequests)
		case f == severed:
			hangUp(w)
		case f == lied:
			_, _ = w.Write([]byte(failure))
		default:
			_, _ = w.Write(e.receipt())
		}
	}
}

func (s *shop) add(e effect) effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ID = fmt.Sprintf("E%d", len(s.effects)+1)
	s.effects = append(s.effects, e)
	return e
}

const failure = `{"isError":true}`

func hangUp(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// find answers a query by key. It fails at times.
func (s *shop) find(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	found := []json.RawMessage{}
	s.mu.Lock()
	s.queries[key]++
	n := s.queries[key]
	for _, e := range s.effects {
		if e.Key == key {
			found = append(found, e.receipt())
		}
	}
	s.mu.Unlock()
	time.Sleep(s.asked + time.Duration(s.draw("asked", key, fmt.Sprint(n))%uint64(20*time.Millisecond)))
	if s.seed != 0 && s.draw("find", key, fmt.Sprint(n))%100 < 15 {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(found) // who asked may be gone
}

// close waits for what is under way and returns every effect.
func (s *shop) close() []effect {
	s.working.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects
}
