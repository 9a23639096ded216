package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestResultsOverHTTP: they are the server's there too, the first time and in a
// replay to another client, in both eras.
func TestResultsOverHTTP(t *testing.T) {
	t.Parallel()
	srv, log := corpusServer(t)
	w := startFront(t, "", HTTPConfig{}, func(c *Config) { c.Servers = []Server{srv} })
	w.log = log
	clients := []struct {
		meta string
		*visitor
	}{{"", w.visitor().handshake()}, {"", w.visitor().handshake()}, {"," + helloMeta, w.visitor()}}
	for i, text := range corpusResults {
		want := withoutOurs(t, []byte(text))
		for n, c := range clients {
			body := c.post(200, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d-%d","method":"tools/call","params":{"name":"write%d","arguments":{},"_meta":{%s%s}}}`, i, n, i, named("t", fmt.Sprint("s", i)), c.meta))
			var got []byte
			for line := range strings.Lines(body) {
				line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
				if strings.Contains(line, fmt.Sprintf(`"id":"%d-%d"`, i, n)) {
					got = resultOf(t, line)
				}
			}
			members := withoutOurs(t, got)
			if c.meta != "" && want[`"resultType"`] == "" {
				delete(members, `"resultType"`) // the era's, put in
			}
			if c.meta != "" && want[`"_meta"."io.modelcontextprotocol/serverInfo"`] == "" {
				delete(members, `"_meta"."io.modelcontextprotocol/serverInfo"`)
			}
			if diff := cmp.Diff(want, members); diff != "" {
				t.Errorf("result %d, client %d (-want +got):\n%.2000s", i, n, diff)
			}
			if (find(find(got, "_meta"), "mcp-idem/replayed") != nil) != (n > 0) {
				t.Errorf("result %d, client %d: %.300s", i, n, got)
			}
		}
		if n := strings.Count(w.seen(), fmt.Sprintf(`"write%d"`, i)); n != 1 {
			t.Errorf("tool %d ran %d times", i, n)
		}
	}
}
