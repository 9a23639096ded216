package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"

	"github.com/mcp-idem/mcp-idem/cmd/mcp-idem-server/config"
)

// taskReport says where the id of a task comes from, and whether it is the same
// after a restart.
type taskReport struct {
	Sources  []taskSource `json:"sources"`
	Survives string       `json:"survives_restart"` // yes; named: where the client names it; no
	Text     string       `json:"text"`
}

type taskSource struct {
	Source string `json:"source"`
	Says   string `json:"says"`
}

func (t *taskReport) print(w io.Writer) {
	fmt.Fprintln(w, "task")
	for _, s := range t.Sources {
		fmt.Fprintf(w, "  %s: %s\n", s.Source, s.Says)
	}
	fmt.Fprintf(w, "  %s\n", t.Text)
}

// senders are the clients that are known to send something.
var senders = map[string]string{"_meta.threadId": "Codex sends it", "_meta.openai/session": "ChatGPT sends it", "_meta.vscode.conversationId": "VS Code sends it"}

func (p *program) examineTask(cfg *config.Config, r *report) *taskReport {
	t := &taskReport{Sources: []taskSource{}, Survives: "no"}
	perCall := false
	for _, s := range cfg.Identity.Task {
		says := senders[s.String()]
		value := ""
		switch s.Kind {
		case config.KindEnv:
			if value = p.getenv(s.Name); value == "" {
				says = "not set here"
			}
			if s.Name == "CLAUDE_CODE_SESSION_ID" {
				says += " (Claude Code sets it for servers that it starts)"
			}
		case config.KindFlag:
			if value = p.flags.task; value == "" {
				says = "not given (--task)"
			}
		default:
			perCall = true
			if says == "" {
				says = "where the client sends it"
			}
		}
		if value != "" {
			t.Survives = "yes"
			says = "set here" + says
		}
		t.Sources = append(t.Sources, taskSource{s.String(), says})
	}
	switch {
	case t.Survives == "yes":
		t.Text = "a call that names no task belongs to the one that is set here, after a restart too"
	case perCall:
		t.Survives = "named"
		t.Text = "it survives a restart where the client names it; else it is random for each process (over HTTP: each session), and a restart cannot find it again"
	default:
		t.Text = "no source has one: it is random for each process (over HTTP: each session), and a restart cannot find it again"
	}
	if t.Survives != "yes" {
		r.warn("no --task is given: unless the client names its task (Claude Code, Codex, VS Code and ChatGPT do; what is built on the TypeScript SDK, the OpenAI Agents SDK, LangChain or the AI SDK sends no _meta), a call without a step or key cannot be found again after a restart")
	}
	if cfg.HTTP.Given && t.Survives == "no" {
		r.warn("identity.task has no source that a client over HTTP could use: without a session, each call that names no step or key is an operation of its own, and a repeated one has its effect again")
	}
	if cfg.HTTP.Given && t.Survives == "yes" {
		r.warn("over HTTP, all clients that name no task share the one that is set here: equal calls of two of them can be taken for one")
	}
	return t
}

// httpReport is what doctor says of serving over HTTP.
type httpReport struct {
	Listen string        `json:"listen"`
	TLS    bool          `json:"tls"`
	Tokens []tokenReport `json:"tokens"` // empty: none is asked for
}

type tokenReport struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
}

func (h *httpReport) print(w io.Writer) {
	scheme := map[bool]string{false: "http", true: "https"}[h.TLS]
	fmt.Fprintf(w, "http\n  %s://%s/mcp\n", scheme, h.Listen)
	for _, t := range h.Tokens {
		fmt.Fprintf(w, "  token of %s: tenant %s\n", clean(t.Name), clean(t.Tenant))
	}
	if len(h.Tokens) == 0 {
		fmt.Fprintln(w, "  no token is asked for")
	}
}

// examineHTTP is nil where the configuration says nothing of HTTP.
func examineHTTP(cfg *config.Config, r *report) *httpReport {
	g := cfg.HTTP
	if !g.Given {
		return nil
	}
	h := &httpReport{Listen: g.Listen, TLS: g.TLSCert != "", Tokens: []tokenReport{}}
	for _, t := range g.Tokens {
		h.Tokens = append(h.Tokens, tokenReport{t.Name, t.Tenant})
	}
	host, _, _ := net.SplitHostPort(g.Listen)
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	if !local && len(h.Tokens) == 0 {
		r.warn("http.listen %s: whoever reaches it could call every tool, since no token is asked for (http.tokens); serve refuses that without --insecure-no-auth", g.Listen)
	}
	if !local && !h.TLS {
		r.warn("http.listen %s: tokens and results go over the network in plain text, unless something before it speaks TLS (http.tls_cert, http.tls_key)", g.Listen)
	}
	if h.TLS {
		if _, err := tls.LoadX509KeyPair(g.TLSCert, g.TLSKey); err != nil {
			r.warn("http.tls_cert, http.tls_key: %v", err)
		}
	}
	return h
}
