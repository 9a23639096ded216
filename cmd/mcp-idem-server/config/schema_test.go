package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	checker "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/tailscale/hujson"
)

var update = flag.Bool("update", false, "write testdata/mcp-idem.schema.json anew from the types")

// generate makes the schema of the types. Their comments are its descriptions.
func generate(t *testing.T) []byte {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, Mapper: func(typ reflect.Type) *jsonschema.Schema {
		switch typ {
		case reflect.TypeFor[Duration]():
			return &jsonschema.Schema{Type: "string", Pattern: `^[+]?(0|([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|[$][{]`}
		case reflect.TypeFor[Size]():
			return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+(B|[KMG]i?B)$|[$][{]`}
		}
		return nil
	}}
	if err := r.AddGoComments(reflect.TypeFor[File]().PkgPath(), "."); err != nil {
		t.Fatal(err)
	}
	for k, c := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(c), " ")
	}
	s := r.Reflect(&File{})
	s.Title = "Configuration of mcp-idem-server"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func TestSchemaIsCurrent(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", "mcp-idem.schema.json"), want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := Schema(); !bytes.Equal(got, want) {
		t.Errorf("the schema is not that of the types; write it anew with: go test ./cmd/mcp-idem-server/config -run Schema -update\n%s", cmp.Diff(string(got), string(want)))
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	var s struct {
		Defs map[string]struct {
			Properties map[string]struct{ Description string } `json:"properties"`
			Additional *bool                                   `json:"additionalProperties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Defs) != 10 {
		t.Errorf("%d types", len(s.Defs))
	}
	for name, def := range s.Defs {
		if def.Additional == nil || *def.Additional {
			t.Errorf("%s allows unknown fields", name)
		}
		for field, p := range def.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

func compiled(t *testing.T) *checker.Schema {
	t.Helper()
	doc, err := checker.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := checker.NewCompiler()
	if err := c.AddResource("mcp-idem.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mcp-idem.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *checker.Schema, file string) error {
	t.Helper()
	plain, err := hujson.Standardize([]byte(file))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	doc, err := checker.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s.Validate(doc)
}

// inScript are the configurations in scripts, inReadme those in prose.
var (
	inScript = regexp.MustCompile(`(?ms)^-- \S+\.jsonc? --\n(.*?)(?:\z|^-- )`)
	inReadme = regexp.MustCompile("(?ms)^```jsonc?\n(.*?)^```")
)

// Every file that the program takes fits the schema: those of the tests, of the
// scripts and of the README.
func TestGoodFilesFitTheSchema(t *testing.T) {
	s := compiled(t)
	full, err := os.ReadFile(filepath.Join("testdata", "full.jsonc"))
	if err != nil {
		t.Fatal(err)
	}
	files := append(accepted(), string(full))
	for glob, blocks := range map[string]*regexp.Regexp{
		"../testdata/*/*.txtar": inScript, "../../../README.md": inReadme,
	} {
		paths, err := filepath.Glob(glob)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", glob, paths, err)
		}
		n := 0
		for _, p := range paths {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
				if _, err := parse([]byte(m[1]), func(string) (string, bool) { return "x", true }); err == nil {
					files = append(files, m[1])
					n++
				}
			}
		}
		if n < 3 {
			t.Errorf("only %d configurations in %s", n, glob)
		}
	}
	for _, file := range files {
		if err := validate(t, s, file); err != nil {
			t.Errorf("%s\n%v", file, err)
		}
	}
}

func TestBadFilesDoNotFitTheSchema(t *testing.T) {
	s := compiled(t)
	for _, file := range []string{
		`[]`, `{"tenant":7}`, `{"tenant":null}`, `{"tenant":""}`, `{"ledgr":"x"}`, `{"policies":{}}`, `{"lease":30}`, `{"lease":"30 parsecs"}`, `{"lease":"-1s"}`, `{"result_limit":"4 MiB"}`, `{"result_limit":4}`,
		`{"names":"short"}`, `{"retry_budget":{}}`, `{"control_tools":"no"}`, policyWith(`"recncile":{}`), policyWith(`"effect":"delete"`), policyWith(`"approve":false`), `{"policies":[{"effect":"read"}]}`,
		`{"policies":[{"match":"a/b","forward":{}}]}`, `{"policies":[{"match":"a/b","forward":{"argument":"a.b"}}]}`, `{"policies":[{"match":"a/b","forward":{"argument":"x","enforced":"native"}}]}`,
		policyWith(`"retry":{"max_attempts":0}`), policyWith(`"retry":{"max_attempts":1.5}`), policyWith(`"classify":[{"if":"true","class":"maybe"}]`), policyWith(`"classify":[{"if":"true"}]`),
		policyWith(`"reconcile":{"tool":"s"}`), reconcileWith(`"settled":"1s"`), reconcileWith(`"settle":"1"`), policyWith(`"bind":[]`),
		serverWith(``), serverWith(`"command":"x","url":"http://h"`), serverWith(`"type":"pipe","command":"x"`), serverWith(`"command":"x","args":"y"`), serverWith(`"command":"x","env":{"A":1}`), serverWith(`"command":"x","enabled":true`),
		serverWith(`"command":"x","allow":[]`), httpWith(`"tokens":[{"sha256":"s3cret"}]`), httpWith(`"tokens":[{"tenant":"a"}]`), httpWith(`"tokens":[]`), httpWith(`"listen":"localhost"`), httpWith(`"max_body":"16"`),
		`{"identity":{"task":["_meta"]}}`, `{"identity":{"step":["flag"]}}`, `{"identity":{"new_run":"always"}}`,
	} {
		if validate(t, s, file) == nil {
			t.Errorf("fits: %s", file)
		}
		if _, err := parse([]byte(file), env); err == nil { // the schema must not be stricter than the program
			t.Errorf("the program takes %s", file)
		}
	}
}

// What stands in for a value does not hide that the rest is checked.
func TestSchemaAllowsVariables(t *testing.T) {
	s := compiled(t)
	for _, file := range []string{`{"lease":"${LEASE}"}`, `{"ledger":"${URL}"}`, httpWith(`"listen":"${ADDR}","tokens":[{"sha256":"${HASH}"}]`), serverWith(`"url":"${URL}","headers":{"A":"Bearer ${X}"}`)} {
		if err := validate(t, s, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
