package mcp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-idem/mcp-idem/policy"
)

// corpusServer is the server of the corpus, and the file that its calls are in.
func corpusServer(t *testing.T) (Server, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	return Server{Name: "fake", Command: self, Env: []string{fakeMode + "=corpus", "FAKE_LOG=" + log, "GORACE=atexit_sleep_ms=0"}, Log: testLog(t)}, log
}

func resultOf(t *testing.T, line string) []byte {
	t.Helper()
	result := find([]byte(line), "result")
	if result == nil {
		t.Fatalf("no result: %.300s", line)
	}
	return result
}

// TestDefinitionsPassUnchanged: what a server says about its tools reaches the
// client byte for byte.
func TestDefinitionsPassUnchanged(t *testing.T) {
	srv, log := corpusServer(t)
	r := startServer(t, srv, log, nil).handshake()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	want := `{"tools":[` + strings.Join(corpusTools, " , ") + `],"_meta":{"n":1.0}}`
	if diff := cmp.Diff(want, string(resultOf(t, r.expect(`"id":1`)))); diff != "" {
		t.Errorf("tools/list (-want +got):\n%s", diff)
	}
}

// withoutOurs are the members of a result by name, as they were written; those of
// its _meta that are the gateway's are left out.
func withoutOurs(t *testing.T, result []byte) map[string]string {
	t.Helper()
	members, err := gather(result)
	if err != nil {
		t.Fatalf("%v: %.300s", err, result)
	}
	out := map[string]string{}
	for name, raw := range members {
		if name != `"_meta"` {
			out[name] = string(raw)
			continue
		}
		meta, err := gather(raw)
		if err != nil {
			t.Fatalf("%v: %.300s", err, raw)
		}
		for inner, raw := range meta {
			if !strings.HasPrefix(inner, `"mcp-idem/`) {
				out[name+"."+inner] = string(raw)
			}
		}
	}
	return out
}

// TestResultsPassAndReplayUnchanged: the first answer, a replay of it and the
// answer of a tool that only reads are the server's, member for member and byte
// for byte, and the tool ran once.
func TestResultsPassAndReplayUnchanged(t *testing.T) {
	srv, log := corpusServer(t)
	tools := stubPolicy{}
	for i := range corpusResults {
		tools[fmt.Sprintf("read%d", i)] = Tool{Effect: policy.EffectRead}
	}
	r := startServer(t, srv, log, tools, func(c *Config) { c.Guard = realGuard(t) }).handshake()
	for i, want := range corpusResults {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			wanted := withoutOurs(t, []byte(want))
			for id, replayed := range []bool{false, true, true} {
				key := fmt.Sprintf(`"%d-%d"`, i, id)
				r.call(key, fmt.Sprintf("write%d", i), `{}`, fmt.Sprintf(`"mcp-idem/task":"t","mcp-idem/step":"s%d"`, i))
				got := resultOf(t, r.expect(`"id":`+key))
				if diff := cmp.Diff(wanted, withoutOurs(t, got)); diff != "" {
					t.Errorf("answer %d (-want +got):\n%.2000s", id, diff)
				}
				if (find(find(got, "_meta"), "mcp-idem/replayed") != nil) != replayed {
					t.Errorf("answer %d: replayed is not %v", id, replayed)
				}
			}
			if n := strings.Count(r.seen(), fmt.Sprintf(`"write%d"`, i)); n != 1 {
				t.Errorf("the tool ran %d times", n)
			}
			r.call(fmt.Sprintf(`"%d-r"`, i), fmt.Sprintf("read%d", i), `{}`, "")
			if got := resultOf(t, r.expect(fmt.Sprintf(`"id":"%d-r"`, i))); string(got) != want {
				t.Errorf("a call that reads:\n%.1000s\nwant\n%.1000s", got, want)
			}
		})
	}
}
