package trustedfile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckTree returns the error of Check for a folder and everything below it. It skips entries
// with names that begin with . or _, which the go command does not compile. Below the folder,
// sticky folders must not be writable by others either. The remedy for the mode of an entry is one
// command for the whole tree.
func CheckTree(dir string) error {
	refused := Check(dir)
	root, err := filepath.EvalSymlinks(dir) // WalkDir follows no link.
	switch {
	case refused != nil:
		return withRemedyOfTree(refused, root)
	case err != nil:
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
			err = &Error{Path: path, Problem: "is a folder in which others can make files", isWritable: true}
		}
		return withRemedyOfTree(err, root)
	})
}

// withRemedyOfTree replaces the remedy for the mode of an entry in the tree at root. A umask of 002
// leaves the whole tree writable for the group. Folders above root keep their own remedy.
func withRemedyOfTree(err error, root string) error {
	refusal, ok := errors.AsType[*Error](err)
	if ok && refusal.isWritable && (refusal.Path == root || strings.HasPrefix(refusal.Path, root+"/")) {
		refusal.Remedy = "chmod -R go-w " + root
	}
	return err
}
