package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	idem "github.com/mcp-idem/mcp-idem"
)

// client is a host's way to the shop.
type client struct {
	http http.Client
	host string
	skew time.Duration
}

func newClient(socket, host string, skew time.Duration) *client {
	var d net.Dialer
	return &client{host: host, skew: skew, http: http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // so that nothing is sent twice
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}}
}

// effect orders something by name.
func (c *client) effect(name string) idem.Effect {
	return idem.Effect{Run: func(ctx context.Context, d idem.Dispatch) idem.Outcome { return c.order(ctx, name, d) }}
}

func (c *client) order(ctx context.Context, name string, d idem.Dispatch) idem.Outcome {
	q := url.Values{"key": {d.Key}, "attempt": {fmt.Sprint(d.Attempt)}, "name": {name}, "host": {c.host}}
	// What a host thinks of the time of day must not matter.
	out := idem.Outcome{Sent: time.Now().Add(c.skew)}
	status, body, err := c.do(ctx, http.MethodPost, q)
	switch {
	case err != nil:
		out.Class, out.Ended, out.Text = idem.ClassAmbiguous, idem.EndByBytes, err.Error()
	case status == http.StatusTooManyRequests:
		out.Class = idem.ClassThrottled
	case status == http.StatusUnprocessableEntity:
		out.Class = idem.ClassRejected
	case string(body) == failure:
		out.Class, out.Result, out.Kind = idem.ClassReported, body, idem.ResultValue
	default:
		out.Class, out.Result, out.Kind, out.ExternalID = idem.ClassSuccess, body, idem.ResultValue, idOf(body)
	}
	return out
}

func (c *client) do(ctx context.Context, method string, q url.Values) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://shop/orders?"+q.Encode(), nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// Query implements idem.Reconciler.
func (c *client) Query(ctx context.Context, l idem.Lookup) (idem.Finding, error) {
	status, body, err := c.do(ctx, http.MethodGet, url.Values{"key": {l.Key}})
	if err != nil {
		return idem.Finding{}, err
	}
	if status != http.StatusOK {
		return idem.Finding{}, fmt.Errorf("the shop says %d", status)
	}
	var found []json.RawMessage
	if err := json.Unmarshal(body, &found); err != nil {
		return idem.Finding{}, err
	}
	var f idem.Finding
	for _, receipt := range found {
		f.IDs, f.Result = append(f.IDs, idOf(receipt)), receipt
	}
	return f, nil
}

func idOf(receipt []byte) string {
	var e effect
	_ = json.Unmarshal(receipt, &e) // then it has none
	return e.ID
}
