package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/demo"
	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/e2e/relay"
)

// badProxy stands before a gateway. To the first call of a tool it does what
// manner says, and answers it with status; everything else goes by.
type badProxy struct {
	pass   http.Handler
	manner manner
	status int
	calls  atomic.Int32
}

// manner is what becomes of the call that is answered with a status. pass takes
// it to the gateway and returns when that has answered, or when ctx ends.
type manner func(ctl relay.Control, pass func(context.Context)) error

// refused: the gateway never sees the call.
func refused(relay.Control, func(context.Context)) error { return nil }

// impatient: the proxy leaves when the effect has happened, before the answer.
func impatient(ctl relay.Control, pass func(context.Context)) error {
	if err := ctl.Hold(ticketTool); err != nil {
		return err
	}
	ctx, leave := context.WithTimeout(context.Background(), time.Minute)
	defer leave()
	left := make(chan struct{})
	go func() {
		defer close(left)
		pass(ctx)
	}()
	_, err := ctl.Wait(ctx, relay.Held, ticketTool, 1)
	leave()
	<-left
	return errors.Join(err, ctl.Hold(""), ctl.Release())
}

// forgetful: the proxy reads the whole answer and passes none of it on.
func forgetful(_ relay.Control, pass func(context.Context)) error {
	pass(context.Background())
	return nil
}

func (st *stage) behind(p *badProxy, gateway string) string {
	to, err := url.Parse(gateway)
	must(st.t, err)
	reverse := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: to.Scheme, Host: to.Host})
	reverse.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // who leaves has one
	p.pass = reverse
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // its client has left
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte(`"tools/call"`)) || p.calls.Add(1) > 1 {
			p.pass.ServeHTTP(w, r)
			return
		}
		err = p.manner(st.ctl, func(ctx context.Context) { p.pass.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx)) })
		if err != nil {
			st.t.Error(err)
		}
		w.WriteHeader(p.status)
	}))
	st.t.Cleanup(srv.Close)
	return srv.URL + to.Path
}

// A client that sends its call again after 503 and 429, under a new id and with
// no key. Where its task is known, its session's or one that is named, the second
// call meets the first while that is unsettled or its answer did not arrive. A
// proxy that took the whole answer looks like a client that has it and means
// another one: only the policy can tell that there is none. Without a session
// and a task nothing ties one call to another. These two are why want can be 2.
func TestClientSendsAgain(t *testing.T) {
	t.Parallel()
	needServers(t)
	task := map[string]string{"Mcp-Idem-Task": "order-17"}
	var ends []func()
	for _, c := range []struct {
		name, version string
		headers       map[string]string
		policy        map[string]any
		manner        manner
		status        int
		want          int
	}{
		{"never passed on", legacy, nil, nil, refused, http.StatusTooManyRequests, 1},
		{"a session, unsettled", legacy, nil, nil, impatient, http.StatusServiceUnavailable, 1},
		{"a task, unsettled", modern, task, nil, impatient, http.StatusTooManyRequests, 1},
		{"no task, answered, a business key", modern, nil, map[string]any{"key": ".order_id"}, forgetful, http.StatusServiceUnavailable, 1},
		{"a session, answered, replays only", legacy, nil, map[string]any{"repeat": "replay"}, forgetful, http.StatusServiceUnavailable, 1},
		{"a session, answered", legacy, nil, nil, forgetful, http.StatusServiceUnavailable, 2},
		{"no task, unsettled", modern, nil, nil, impatient, http.StatusServiceUnavailable, 2},
	} {
		st := ticketStage(t, mustBuild(t, gateway), c.policy)
		proxy := &badProxy{manner: c.manner, status: c.status}
		p := plan{
			URL: st.behind(proxy, st.serve().url), Headers: c.headers, Version: c.version, MaxRetries: 1, Connections: 1,
			Call: map[string]any{"name": ticketTool, "arguments": ticketArgs},
		}
		end := p.start(t, "aisdk.mjs") // it pauses for two seconds: all do so together
		ends = append(ends, func() {
			said := end()
			if n := proxy.calls.Load(); n != 2 {
				t.Errorf("%s: the client sent %d calls, want 2", c.name, n)
			}
			all, err := demo.ReadTickets(st.dir)
			must(t, err)
			if len(all) != c.want {
				t.Fatalf("%s: %d tickets, want %d: %s", c.name, len(all), c.want, said[0].Result)
			}
			if last := all[len(all)-1].ID; !bytes.Contains(said[0].Result, []byte(`"mcp-idem/external_id":"`+last+`"`)) {
				t.Errorf("%s: not the outcome of %s: %s", c.name, last, said[0].Result)
			}
		})
	}
	for _, end := range ends {
		end()
	}
}
