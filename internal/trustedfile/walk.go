package trustedfile

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the number of symbolic links in one path beyond which the kernel returns ELOOP.
const maxLinks = 40

// walk is a resolution in progress.
type walk struct {
	// Last checked folder, opened with O_PATH. Its name is the path without links.
	folder *os.File
	// Other users may write to folder, which is sticky then.
	isShared bool
	// Elements of the path that are not resolved yet.
	rest []string
	// Links resolved so far.
	links int
}

// resolve checks each element of a path and opens the last one with flags.
func resolve(path string, flags int) (*os.File, error) {
	if path == "" {
		return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
	}
	if !strings.HasPrefix(path, "/") {
		cwd, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		path = cwd + "/" + path // filepath.Join would remove ".." before links are resolved.
	}
	w := &walk{rest: elements(path)}
	defer func() { w.folder.Close() }()
	if err := w.enterRoot(); err != nil {
		return nil, err
	}
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		f, mode, err := w.lookup(name)
		if err != nil {
			return nil, err
		}
		isLast := len(w.rest) == 0
		switch {
		case mode&unix.S_IFMT == unix.S_IFLNK:
			err = w.follow(f)
			f.Close()
			if err != nil {
				return nil, err
			}
		case !isLast:
			w.enter(f, mode)
		case flags&unix.O_PATH != 0:
			return f, nil
		default:
			f.Close()
			return w.open(name, flags)
		}
	}
	return openAt(w.folder, ".", w.folder.Name(), flags) // The path is "/", or ends in a link to it.
}

// elements splits a path. "." stays out, and ".." is an element like any other.
func elements(path string) (list []string) {
	for e := range strings.SplitSeq(path, "/") {
		if e != "" && e != "." {
			list = append(list, e)
		}
	}
	return list
}

// enterRoot restarts at the root folder.
func (w *walk) enterRoot() error {
	f, err := openAt(nil, "/", "/", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	mode, err := check(f)
	if err != nil {
		f.Close()
		return err
	}
	w.enter(f, mode)
	return nil
}

// enter makes f, which it owns, the folder of the next look-up.
func (w *walk) enter(f *os.File, mode uint32) {
	w.folder.Close()
	w.folder, w.isShared = f, mode&0o022 != 0
}

// lookup opens an element with O_PATH, and checks it. A link is checked only in a folder that
// others may write to. In other folders, only root or this user can have made it.
func (w *walk) lookup(name string) (f *os.File, mode uint32, err error) {
	if f, err = openAt(w.folder, name, w.pathOf(name), unix.O_PATH|w.nofollow()); err != nil {
		return nil, 0, err
	}
	if mode, err = check(f); err != nil && !(mode&unix.S_IFMT == unix.S_IFLNK && !w.isShared) {
		f.Close()
		return nil, 0, err
	}
	return f, mode, nil
}

// open opens a checked element, and checks it again.
func (w *walk) open(name string, flags int) (*os.File, error) {
	f, err := openAt(w.folder, name, w.pathOf(name), flags|w.nofollow())
	if err != nil {
		return nil, err
	}
	if _, err := check(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// nofollow returns O_NOFOLLOW, except in /proc. Links there may have targets without a path,
// such as an open file in memory, and belong to the kernel.
func (w *walk) nofollow() int {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(w.folder.Fd()), &system); err == nil && system.Type == unix.PROC_SUPER_MAGIC {
		return 0
	}
	return unix.O_NOFOLLOW
}

// follow puts the target of a link before the rest of the path.
func (w *walk) follow(link *os.File) error {
	if w.links++; w.links > maxLinks {
		return &fs.PathError{Op: "open", Path: link.Name(), Err: unix.ELOOP}
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(link.Fd()), "", target)
	if err != nil {
		return &fs.PathError{Op: "readlink", Path: link.Name(), Err: err}
	}
	to := string(target[:n])
	w.rest = append(elements(to), w.rest...)
	if strings.HasPrefix(to, "/") {
		return w.enterRoot()
	}
	return nil
}

// pathOf returns the path of an element of the folder.
func (w *walk) pathOf(name string) string {
	return strings.TrimSuffix(w.folder.Name(), "/") + "/" + name
}

// openAt opens name, relative to folder unless that is nil. The result has the given path as its
// name.
func openAt(folder *os.File, name, path string, flags int) (*os.File, error) {
	at := unix.AT_FDCWD
	if folder != nil {
		at = int(folder.Fd())
	}
	fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// check returns the mode of f, and an *Error if a user other than root and the effective one can
// change f. In a sticky folder, others can't replace the files of this user.
func check(f *os.File) (mode uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	isLink := st.Mode&unix.S_IFMT == unix.S_IFLNK
	isStickyFolder := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return st.Mode, &Error{Path: f.Name(), Problem: fmt.Sprintf("belongs to user %d, not to root or to this one", st.Uid),
			Remedy: "install it where only root or this user can write"}
	case !isLink && !isStickyFolder && st.Mode&0o022 != 0:
		return st.Mode, &Error{Path: f.Name(), Problem: fmt.Sprintf("can be written by others (mode %v)", fs.FileMode(st.Mode&0o777)),
			Remedy: "chmod go-w " + f.Name(), isWritable: true}
	}
	return st.Mode, nil
}
