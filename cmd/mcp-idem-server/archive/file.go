package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Create makes a file at path, mode 0600, of what write writes. The file is
// there whole and durable, or not at all. One that is there already is refused,
// or replaced with force.
func Create(path string, force bool, write func(io.Writer) error) (err error) {
	if err := vacant(path, force); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := vacant(path, force); err != nil { // it took a while
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func vacant(path string, force bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; leave the name out to write to standard output", path)
	case !force:
		return fmt.Errorf("%s exists; choose another name, or replace it with --force", path)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// Spool copies r, which can be read once, into a temporary file that can be read
// again, and is gone when it is closed.
func Spool(r io.Reader) (*os.File, error) {
	f, err := os.CreateTemp("", "mcp-idem-import-*")
	if err != nil {
		return nil, err
	}
	// It has a name no longer than it takes to remove it: it holds what tools
	// were asked for.
	err = os.Remove(f.Name())
	if err == nil {
		_, err = io.Copy(f, r)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
