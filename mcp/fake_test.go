package mcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeMode makes this test binary a server; its words are switches.
const fakeMode = "MCP_IDEM_TEST_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeMode); mode != "" {
		switch mode {
		case "gateway":
			serveGateway()
		case "guarded":
			serveGuarded()
		case "copier":
			serveCopier()
		case "lister":
			serveLister()
		case "listed":
			serveListed()
		case "web-server":
			serveWebServer()
		case "web-gateway":
			serveWebGateway()
		case "web-proxy":
			serveWebProxy()
		case "corpus":
			serveCorpus()
		case "sdk":
			serveSDK()
		case "acts":
			serveActs()
		default:
			serveFake(strings.Fields(mode))
		}
		return
	}
	os.Exit(m.Run())
}

// fake is a server with one tool per kind of trouble. It appends a line to the
// file in FAKE_LOG for everything that reaches it.
type fake struct {
	mu    sync.Mutex
	log   *os.File
	modes map[string]bool
	waits map[string]chan json.RawMessage
	wg    sync.WaitGroup
}

func serveFake(modes []string) {
	f := &fake{modes: map[string]bool{}, waits: map[string]chan json.RawMessage{}}
	for _, m := range modes {
		f.modes[m] = true
	}
	if path := os.Getenv("FAKE_LOG"); path != "" {
		f.log, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		defer f.log.Close()
	}
	f.note("start %d", os.Getpid())
	if f.modes["dies"] {
		fmt.Fprintln(os.Stderr, "no such package")
		os.Exit(3)
	}
	if f.modes["dies-once"] {
		if _, err := os.Stat(os.Getenv("FAKE_LOG") + ".died"); err != nil {
			_ = os.WriteFile(os.Getenv("FAKE_LOG")+".died", nil, 0o600)
			os.Exit(3)
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 1 {
			f.line(line)
		}
		if err != nil {
			break
		}
	}
	f.wg.Wait()
	f.note("end")
}

func (f *fake) note(format string, a ...any) {
	if f.log != nil {
		fmt.Fprintf(f.log, format+"\n", a...)
	}
}

func (f *fake) write(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", a...)
}

type fakeMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
}

func (f *fake) line(line []byte) {
	var m fakeMessage
	if err := json.Unmarshal(line, &m); err != nil {
		f.note("bad %s", line)
		return
	}
	result := func(s string) { f.write(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, s) }
	switch m.Method {
	case "":
		f.mu.Lock()
		ch := f.waits[string(m.ID)]
		f.mu.Unlock()
		if ch != nil {
			ch <- m.Result
		}
	case "initialize":
		f.note("initialize %s", m.Params)
		if f.modes["late"] {
			time.Sleep(initWait + time.Second)
		}
		if f.modes["modern-only"] {
			f.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"gone"}}`, m.ID)
			return
		}
		result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
	case "server/discover":
		f.note("discover")
		if f.modes["modern-only"] {
			result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}`)
			return
		}
		f.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
	case "ping":
		result(`{}`)
	case "flood":
		go func() {
			for {
				f.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`, strings.Repeat("x", 500))
			}
		}()
	case "tools/list":
		f.note("list %s", m.Params)
		if !strings.Contains(string(m.Params), "page2") {
			result(`{"tools":[{"name":"peek","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"},"x":9007199254740993}],"nextCursor":"page2"}`)
			return
		}
		result(`{"tools":[{"name":"routed","inputSchema":{"type":"object","properties":{"to":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}},"n":{"type":"integer","x-mcp-header":"N"}}}},{"name":"strict","inputSchema":{"type":"object","properties":{"a":{}},"additionalProperties":false}}]}`)
	case "tools/call":
		f.wg.Go(func() { f.call(m) })
	default:
		f.note("%s %s", m.Method, m.Params)
		if len(m.ID) > 0 {
			f.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		}
	}
}

func (f *fake) call(m fakeMessage) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p)
	f.note("call %s %s %s", p.Name, p.Arguments, p.Meta)
	good := fmt.Sprintf(`{"content":[{"type":"text","text":"done"}],"structuredContent":{"n":9007199254740993,"p":1.0},"_meta":{"up/trace":"x"},"got":%s}`, or(p.Arguments, "null"))
	reply := func(s string) { f.write(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, s) }
	switch p.Name {
	case "exit":
		os.Exit(7)
	case "garbage":
		f.write(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"ty`, m.ID)
	case "garbage-then-good":
		f.write(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"ty`, m.ID)
		time.Sleep(100 * time.Millisecond)
		reply(good)
	case "long":
		reply(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 3<<20) + `"}]}`)
	case "long-id-last":
		f.write(`{"result":{"content":[{"type":"text","text":"%s"}]},"jsonrpc":"2.0","id":%s}`, strings.Repeat("x", 3<<20), m.ID)
	case "badutf8":
		f.write(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, m.ID, "\xff\xfe")
	case "noise":
		f.write("hello, I am a log line")
		reply(good)
	case "rejects":
		f.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad priority","data":"why"}}`, m.ID)
	case "slow":
		time.Sleep(300 * time.Millisecond)
		reply(good)
	case "silent", "hush":
	case "human":
		ch := make(chan json.RawMessage, 1)
		f.mu.Lock()
		f.waits[`"elicit-1"`] = ch
		f.mu.Unlock()
		f.write(`{"jsonrpc":"2.0","id":"elicit-1","method":"elicitation/create","params":{"message":"sure?"}}`)
		reply(`{"content":[],"structuredContent":` + string(<-ch) + `}`)
	case "asks":
		reply(`{"resultType":"input_required","inputRequests":{},"requestState":"st"}`)
	case "progress":
		f.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`)
		reply(good)
	case "steps":
		token := find(p.Meta, "progressToken")
		for i := range steps {
			f.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i)
		}
		reply(good)
	case "pid":
		reply(fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, os.Getpid()))
	case "raw":
		reply(string(m.ID))
	default:
		reply(good)
	}
}

func or(raw json.RawMessage, s string) string {
	if len(raw) == 0 {
		return s
	}
	return string(raw)
}
