package trustedfile

import (
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckTree returns the error of Check for a folder and everything below it. It skips entries
// with names that begin with . or _, which the go command does not compile. Below the folder,
// sticky folders must not be writable by others either.
func CheckTree(dir string) error {
	if err := Check(dir); err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(dir) // WalkDir follows no link.
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != root && strings.ContainsAny(e.Name()[:1], "._"):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		f, err := openAt(nil, path, path, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return err
		}
		defer f.Close()
		mode, err := check(f)
		if err == nil && e.IsDir() && mode&0o022 != 0 {
			err = &Error{path, "is a folder in which others can make files", "chmod go-w " + path}
		}
		return err
	})
}
