package idem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	idem "github.com/mcp-idem/mcp-idem"
)

// declared lists the string constants of a type in a source file.
func declared(t *testing.T, file, typ string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != typ {
			return true
		}
		for _, v := range spec.Values {
			s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		return true
	})
	slices.Sort(all)
	return all
}

func texts[T ~string](list []T) []string {
	var all []string
	for _, v := range list {
		all = append(all, string(v))
	}
	slices.Sort(all)
	return all
}

func TestListsNameEveryConstant(t *testing.T) {
	if got, want := texts(idem.States()), declared(t, "state.go", "State"); !slices.Equal(got, want) {
		t.Errorf("States() %q, declared %q", got, want)
	}
	// An interim answer is no end, so no rule may name it.
	if got, want := texts(append(idem.Classes(), idem.ClassInterim)), declared(t, "class.go", "Class"); !slices.Equal(got, want) {
		t.Errorf("Classes() and interim %q, declared %q", got, want)
	}
}

func TestReasonsAreAllReached(t *testing.T) {
	_, reasons := exploreAll(t)
	for _, r := range declared(t, "class.go", "Reason") {
		if !reasons[idem.Reason(r)] {
			t.Errorf("no path of the machine gives reason %s", r)
		}
	}
}
