package mcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// acts is a server of both eras that appends a line to the file in FAKE_LOG for
// each effect. What a tool's name begins with says what it does; the rest tells
// one policy from another.
type acts struct {
	mu  sync.Mutex
	log string
}

func serveActs() {
	a := &acts{log: os.Getenv("FAKE_LOG")}
	var calls sync.WaitGroup
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var m fakeMessage
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch m.Method {
		case "initialize":
			a.answer(m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
		case "server/discover":
			a.answer(m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
		case "ping":
			a.answer(m, `{}`)
		case "tools/list":
			a.answer(m, `{"tools":[{"name":"breaks","annotations":{"idempotentHint":true},"inputSchema":{"type":"object"}}]}`)
		case "notifications/cancelled":
			a.note("cancelled %s", m.Params)
		case "tools/call":
			calls.Go(func() { a.call(m) })
		}
	}
	calls.Wait()
}

func (a *acts) write(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (a *acts) answer(m fakeMessage, result string) {
	a.write(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// note appends a line, whole, for several processes have one file.
func (a *acts) note(format string, args ...any) {
	f, err := os.OpenFile(a.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, format+"\n", args...)
		_ = f.Close()
	}
	if err != nil {
		panic(err)
	}
}

func (a *acts) call(m fakeMessage) {
	var p struct {
		Name           string
		Arguments      json.RawMessage
		InputResponses json.RawMessage
	}
	_ = json.Unmarshal(m.Params, &p)
	text := func(s string, more string) {
		a.answer(m, fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%s}]%s}`, quote(s), more))
	}
	kind, _, _ := strings.Cut(p.Name, "-")
	if kind == "asks" && p.InputResponses == nil {
		a.answer(m, `{"resultType":"input_required","requestState":"of `+string(find(p.Arguments, "n"))+`","inputRequests":{"sure":{"method":"elicitation/create","params":{"message":"sure?"}}}}`)
		return
	}
	call := fmt.Sprintf("call %s %s", p.Name, p.Arguments)
	a.note("%s", call)
	switch kind {
	case "waits": // until the test says so
		for !exists(a.log + "." + strings.Trim(string(find(p.Arguments, "n")), `"`)) {
			time.Sleep(5 * time.Millisecond)
		}
		text("waited", "")
	case "lies":
		text("Error 500: no backend", "")
	case "refuses": // the first time
		b, err := os.ReadFile(a.log)
		if err == nil && strings.Count(string(b), call+"\n") == 1 {
			text("the backend is closed", `,"isError":true`)
			return
		}
		text("accepted", "")
	case "breaks":
		a.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"it broke"}}`, m.ID)
	case "big":
		text(strings.Repeat("x", 2<<20), "")
	default:
		text("did "+string(p.Arguments), "")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
