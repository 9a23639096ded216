package npm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// SQLite is mcp-server-sqlite-npx. Its write_query answers "[]" for an INSERT,
// so that only the table tells what happened. The statement is the same on
// every call: the baseline tells one row from another.
func SQLite() Server {
	return Server{
		Name:  "db",
		entry: "mcp-server-sqlite-npx/dist/index.js",
		args:  func(dir string) []string { return []string{database(dir)} },
		seed: func(root, dir string) error {
			_, err := rows(root, database(dir), "CREATE TABLE orders (id INTEGER PRIMARY KEY, ref TEXT)")
			return err
		},
		effect: func(root, dir string) (int, error) {
			all, err := rows(root, database(dir), "SELECT id FROM orders")
			return len(all), err
		},
		Tool: "write_query",
		Arguments: func(string) map[string]any {
			return map[string]any{"query": "INSERT INTO orders (ref) VALUES ('ref-17')"}
		},
		ReadTool: "read_query",
		Query: map[string]any{
			"tool": "read_query", "baseline": true,
			"arguments": `{query: "SELECT id FROM orders"}`,
			"found":     "[.content[0].text | fromjson | .[].id]",
		},
	}
}

// SQLiteByKey is SQLite with a business key, read off the statement's text, in
// place of the baseline.
func SQLiteByKey() (Server, []map[string]any) {
	s := SQLite()
	s.Query = map[string]any{
		"tool":      "read_query",
		"arguments": `{query: ("SELECT id FROM orders WHERE ref = '" + $business_key + "'")}`,
		"found":     "[.content[0].text | fromjson | .[].id]",
	}
	policies := s.Policy("1s")
	policies[1]["key"] = `.query | capture("'(?<ref>ref-[0-9]+)'").ref`
	return s, policies
}

func database(dir string) string { return filepath.Join(dir, "orders.db") }

// TaskManager is @kazuph/mcp-taskmanager: one JSON file, rewritten as a whole.
func TaskManager() Server {
	path := func(dir string) string { return filepath.Join(dir, "tasks.json") }
	return Server{
		Name:  "tasks",
		entry: "@kazuph/mcp-taskmanager/dist/index.js",
		env:   func(dir string) map[string]string { return map[string]string{"TASK_MANAGER_FILE_PATH": path(dir)} },
		effect: func(_, dir string) (int, error) {
			var file struct{ Requests []json.RawMessage }
			b, err := readOrNone(path(dir))
			if err != nil || b == nil {
				return 0, err
			}
			err = json.Unmarshal(b, &file)
			return len(file.Requests), err
		},
		Tool: "request_planning",
		Arguments: func(string) map[string]any {
			return map[string]any{
				"originalRequest": "ship the order",
				"tasks":           []any{map[string]any{"title": "pack", "description": "one box"}},
			}
		},
		ReadTool: "list_requests",
		Query: map[string]any{
			"tool": "list_requests", "baseline": true,
			"arguments": "{}",
			"found":     "[.content[0].text | fromjson | .requests[].requestId]",
		},
	}
}

// addedLine is what one application of the filesystem server's edit adds.
const addedLine = "shipped: yes\n"

// Filesystem is @modelcontextprotocol/server-filesystem. The edit's old text is
// still there after it, so that a second application changes the file again.
func Filesystem() Server {
	path := func(dir string) string { return filepath.Join(dir, "order.txt") }
	return Server{
		Name:  "files",
		entry: "@modelcontextprotocol/server-filesystem/dist/index.js",
		args:  func(dir string) []string { return []string{dir} },
		seed: func(_, dir string) error {
			return os.WriteFile(path(dir), []byte("order: 17\n"), 0o600)
		},
		effect: func(_, dir string) (int, error) {
			b, err := os.ReadFile(path(dir))
			return bytes.Count(b, []byte(addedLine)), err
		},
		Tool: "edit_file",
		Arguments: func(dir string) map[string]any {
			return map[string]any{
				"path":  path(dir),
				"edits": []any{map[string]any{"oldText": "order: 17\n", "newText": "order: 17\n" + addedLine}},
			}
		},
		ReadTool: "read_text_file",
		Query: map[string]any{
			"tool": "read_text_file", "baseline": true,
			"arguments": "{path: $args.path}",
			"found":     "[.structuredContent.content]",
		},
	}
}

// Memory is @modelcontextprotocol/server-memory: one line of JSON an entity. It
// drops what it has already, so that its storage alone cannot show a second
// call; the relay's events do.
func Memory() Server {
	path := func(dir string) string { return filepath.Join(dir, "memory.jsonl") }
	return Server{
		Name:  "memory",
		entry: "@modelcontextprotocol/server-memory/dist/index.js",
		env:   func(dir string) map[string]string { return map[string]string{"MEMORY_FILE_PATH": path(dir)} },
		effect: func(_, dir string) (int, error) {
			b, err := readOrNone(path(dir))
			n := 0
			for line := range bytes.Lines(b) {
				var e struct{ Name string }
				err = errors.Join(err, json.Unmarshal(line, &e))
				if e.Name == "order-17" {
					n++
				}
			}
			return n, err
		},
		Tool: "create_entities",
		Arguments: func(string) map[string]any {
			return map[string]any{"entities": []any{map[string]any{
				"name": "order-17", "entityType": "order", "observations": []string{"shipped"},
			}}}
		},
		ReadTool: "open_nodes",
		Query: map[string]any{
			"tool": "open_nodes", "baseline": true,
			"arguments": "{names: [$args.entities[].name]}",
			"found":     "[.structuredContent.entities[].name]",
		},
	}
}

func readOrNone(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
