package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdkclient "github.com/mark3labs/mcp-go/client"
	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-idem/mcp-idem"
	"github.com/mcp-idem/mcp-idem/internal/proc"
	"github.com/mcp-idem/mcp-idem/policy"
	"github.com/mcp-idem/mcp-idem/store/boltstore"
)

// BenchmarkGuarded64 keeps 64 guarded calls under way through a gateway with a
// ledger, in turns with 64 that pass through it and with 64 asks of a guard on a
// ledger on the same disk and no gateway. It reports the rate of the first against
// the slower of the others: at least 0.9 is the aim.
func BenchmarkGuarded64(b *testing.B) {
	const at, calls = 64, 1024
	dir := b.TempDir()
	b.Setenv(benchDir, dir)
	p := openPeer(b, "guarded")
	guard := benchGuard(b)
	next := 0
	load := func(tool string) time.Duration {
		ask := func(lines *strings.Builder) {
			next++
			fmt.Fprintf(lines, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"path":"%0200d"},"_meta":{"mcp-idem/task":"t%d","mcp-idem/step":"s%d"}}}`+"\n", next, tool, next, next%at, next)
		}
		start := time.Now()
		for asked, answered := 0, 0; answered < calls; {
			var lines strings.Builder
			for ; asked < calls && asked-answered < at; asked++ {
				ask(&lines)
			}
			if _, err := io.WriteString(p.in, lines.String()); err != nil {
				b.Fatal(err)
			}
			for more := true; more; more = p.out.Buffered() > 0 {
				if answer, err := p.out.ReadSlice('\n'); err != nil || strings.Contains(string(answer), `"isError":true`) {
					b.Fatalf("%v: %s", err, answer)
				}
				answered++
			}
		}
		return time.Since(start)
	}
	result := []byte(`{"content":[{"type":"text","text":"done"}],"structuredContent":{"n":9007199254740993,"p":1.0},"_meta":{"up/trace":"x"},"got":{"path":"` + strings.Repeat("0", 200) + `"}}`)
	ledger := func() time.Duration {
		start := time.Now()
		var all sync.WaitGroup
		for worker := range at {
			first := next + worker
			all.Go(func() {
				for n := first; n < first+calls; n += at {
					ask := idem.Ask{Tenant: "default", Tool: "fake/echo", Args: fmt.Appendf(nil, `{"path":"%0200d"}`, n), Task: fmt.Sprint("t", n%at), Step: fmt.Sprint("s", n)}
					a := guard.Do(b.Context(), ask, idem.Effect{Run: func(context.Context, idem.Dispatch) idem.Outcome {
						return idem.Outcome{Class: idem.ClassSuccess, Result: result, Kind: idem.ResultValue}
					}})
					if a.Err != nil {
						b.Error(a.Err)
					}
				}
			})
		}
		all.Wait()
		next += calls
		return time.Since(start)
	}
	load("peek")
	var guarded, passed, recorded []time.Duration
	for b.Loop() {
		guarded = append(guarded, load("echo"))
		passed = append(passed, load("peek"))
		recorded = append(recorded, ledger())
	}
	g, t, l := middle(guarded), middle(passed), middle(recorded)
	rate := func(d float64) float64 { return calls / (d / 1e9) }
	b.ReportMetric(rate(g), "guarded/s")
	b.ReportMetric(rate(t), "passed/s")
	b.ReportMetric(rate(l), "ledger/s")
	b.ReportMetric(max(t, l)/g, "ratio")
}

func middle(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2])
}

func benchGuard(b *testing.B) *idem.Guard {
	st, err := boltstore.Open(boltstore.Config{Path: filepath.Join(b.TempDir(), "ledger.db"), NoSocket: true})
	if err != nil {
		b.Fatal(err)
	}
	system, err := proc.New()
	if err != nil {
		b.Fatal(err)
	}
	set, err := policy.New(policy.Config{Servers: []string{"fake"}})
	if err != nil {
		b.Fatal(err)
	}
	guard, err := idem.New(idem.Config{Store: st, Policy: set, Owner: system.Self(), Processes: system})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = guard.Close(context.Background()); _ = st.Close() })
	return guard
}

// BenchmarkUnguardedHTTP measures a call of a tool that only reads, by a client of
// mcp-go, of a server of mcp-go: directly, through a gateway that both sides reach over HTTP, and through
// the reverse proxy of the standard library, each in a process of its own, in
// turns. It reports the ratios of the medians: at most 1.6 is the aim.
func BenchmarkUnguardedHTTP(b *testing.B) {
	server := openWeb(b, "web-server", "")
	through, proxied := openWeb(b, "web-gateway", server.url), openWeb(b, "web-proxy", server.url)
	server.greet(b)
	through.greet(b)
	proxied.greet(b)
	for range 200 {
		server.trip(b)
		through.trip(b)
		proxied.trip(b)
	}
	var d, g, c []time.Duration
	for b.Loop() {
		d = append(d, server.trip(b))
		g = append(g, through.trip(b))
		c = append(c, proxied.trip(b))
	}
	b.ReportMetric(middle(d)/1e3, "direct-µs")
	b.ReportMetric(middle(g)/1e3, "gateway-µs")
	b.ReportMetric(middle(g)/middle(d), "ratio")
	b.ReportMetric(middle(c)/middle(d), "proxy-ratio")
}

// webPartner is a server as a client of mcp-go sees it.
type webPartner struct {
	url    string
	client *sdkclient.Client
}

// benchURL names the variable that says where the server behind is.
const benchURL = "MCP_BENCH_URL"

// openWeb runs this test binary in a mode that prints where it listens.
func openWeb(b *testing.B, mode, behind string) *webPartner {
	b.Helper()
	_, _, out := self(b, fakeMode+"="+mode, benchURL+"="+behind)
	p := &webPartner{}
	if _, err := fmt.Fscanln(out, &p.url); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *webPartner) greet(b *testing.B) {
	c, err := sdkclient.NewStreamableHttpClient(p.url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	if err := c.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	hello := sdk.InitializeRequest{}
	hello.Params.ProtocolVersion = legacyVersion
	hello.Params.ClientInfo = sdk.Implementation{Name: "bench", Version: "1"}
	if _, err := c.Initialize(b.Context(), hello); err != nil {
		b.Fatal(err)
	}
	p.client = c
}

func (p *webPartner) trip(b *testing.B) time.Duration {
	call := sdk.CallToolRequest{}
	call.Params.Name, call.Params.Arguments = "peek", map[string]any{"path": strings.Repeat("x", 200)}
	start := time.Now()
	if _, err := p.client.CallTool(b.Context(), call); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// serveWeb serves until standard input ends.
func serveWeb(h http.Handler, path string) {
	ts := httptest.NewServer(h)
	fmt.Println(ts.URL + path)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func serveWebServer() {
	s := sdkserver.NewMCPServer("fake", "1")
	s.AddTool(sdk.NewTool("peek", sdk.WithReadOnlyHintAnnotation(true)), func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return sdk.NewToolResultText("done"), nil
	})
	serveWeb(sdkserver.NewStreamableHTTPServer(s), "/mcp")
}

func serveWebGateway() {
	g, err := NewGateway(Config{Guard: &stubGuard{done: map[string]idem.Outcome{}}, Servers: []Server{{Name: "fake", URL: os.Getenv(benchURL)}}, Policy: stubPolicy{"peek": {Effect: policy.EffectRead}}})
	if err != nil {
		os.Exit(1)
	}
	serveWeb(g.Front(HTTPConfig{}), "/mcp")
}

func serveWebProxy() {
	to, err := url.Parse(os.Getenv(benchURL))
	if err != nil {
		os.Exit(1)
	}
	to.Path = ""
	serveWeb(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}, "/mcp")
}
