package archive

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.jsonl")
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	broken := errors.New("broken")
	if err := Create(path, false, func(w io.Writer) error { return errors.Join(text("half")(w), broken) }); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, error %v", left, err)
	}
	if err := Create(path, false, text("one")); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, false, text("two")); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Fatalf("error %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "one" {
		t.Fatalf("%q, error %v", got, err)
	}
	if err := Create(path, true, text("two")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != 3 || info.Mode() != 0o600 {
		t.Fatalf("%v, error %v", info, err)
	}
	if err := Create(dir, true, text("x")); err == nil {
		t.Fatal("a directory was replaced")
	}
	if err := Create(filepath.Join(dir, "none", "x"), false, text("x")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error %v", err)
	}
}

func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	f, err := Spool(strings.NewReader("once"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for range 2 {
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil || string(b) != "once" {
			t.Fatalf("%q, error %v", b, err)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, error %v", left, err)
	}
}
