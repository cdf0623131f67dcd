package outfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxLinks is the limit of links in one path, beyond which the kernel returns ELOOP.
const maxLinks = 40

// target is the folder and the name to which a path leads. Accesses by the name follow only links
// of the kernel.
type target struct {
	// Path of the caller, for errors and the names of open files.
	path   string
	folder *os.Root
	// Descriptor of folder.
	folderFile *os.File
	name       string
	// Whether the name is a link in /proc. Its target may have no path.
	isKernel bool

	exists bool
	// Status of the file, if it exists.
	stat unix.Stat_t
}

// find follows the links of a path. A link or named pipe must belong to root or to this user,
// because another user with write access to the folder could otherwise select the file that is
// written, or block the writer. The folders of the path are the caller's choice.
func find(path string) (*target, error) {
	next := path
	for range maxLinks {
		t := &target{path: path}
		link, err := t.lookup(next)
		if err == nil && link == "" {
			return t, nil
		}
		t.close()
		if err != nil {
			return nil, err
		}
		if next = link; !filepath.IsAbs(link) {
			next = t.folder.Name() + "/" + link // filepath.Join would remove ".." before links are resolved.
		}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// lookup opens the folder of a path and reads the status of its last element. It returns the
// target of a link.
func (t *target) lookup(path string) (link string, err error) {
	var above string
	above, t.name = filepath.Split(path)
	if path == "" {
		return "", t.pathError("open", unix.ENOENT)
	}
	if t.name == "" || t.name == "." || t.name == ".." {
		return "", fmt.Errorf("%s is a directory", t.path)
	}
	if above == "" {
		above = "."
	}
	if t.folder, err = os.OpenRoot(above); err == nil {
		t.folderFile, err = t.folder.Open(".")
	}
	if err != nil {
		return "", t.pathError("open", cmp.Or(errors.Unwrap(err), err))
	}
	fd, err := unix.Openat(int(t.folderFile.Fd()), t.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	} else if err != nil {
		return "", t.pathError("open", err)
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &t.stat); err != nil {
		return "", t.pathError("stat", err)
	}
	t.exists = true
	switch t.kind() {
	case unix.S_IFDIR:
		return "", fmt.Errorf("%s is a directory", t.path)
	case unix.S_IFLNK:
		return t.follow(fd)
	case unix.S_IFIFO: // Its reader could block the writer forever.
		return "", t.refuseForeign("named pipe")
	}
	return "", nil
}

// refuseForeign returns an error if the file belongs to another user than root and this one.
func (t *target) refuseForeign(kind string) error {
	if uid := t.stat.Uid; uid != 0 && int(uid) != os.Geteuid() {
		return fmt.Errorf("%s is, or leads to, a %s of user %d; remove it, or write to a folder that others cannot write to", t.path, kind, uid)
	}
	return nil
}

// follow returns the target of a link, or "" for one in /proc.
func (t *target) follow(link int) (string, error) {
	var system unix.Statfs_t
	if err := unix.Fstatfs(link, &system); err != nil {
		return "", t.pathError("statfs", err)
	}
	if system.Type == unix.PROC_SUPER_MAGIC {
		t.isKernel = true
		if err := unix.Fstatat(int(t.folderFile.Fd()), t.name, &t.stat, 0); err != nil {
			return "", t.pathError("stat", err)
		}
		return "", nil
	}
	if err := t.refuseForeign("symbolic link"); err != nil {
		return "", err
	}
	to := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", to)
	if err != nil {
		return "", t.pathError("readlink", err)
	}
	return string(to[:n]), nil
}

func (t *target) kind() uint32 { return t.stat.Mode & unix.S_IFMT }

// isRegular reports whether the path leads to a regular file of a folder.
func (t *target) isRegular() bool { return t.exists && !t.isKernel && t.kind() == unix.S_IFREG }

// isSame reports whether both paths lead to one regular file of a folder, which may be missing.
func (t *target) isSame(other *target) bool {
	if t.name != other.name || t.exists && !t.isRegular() || other.exists && !other.isRegular() {
		return false
	}
	a, errA := t.folderFile.Stat()
	b, errB := other.folderFile.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// open opens the existing file for writing without blocking. It returns an error if the file has
// been replaced since find.
func (t *target) open(flags int) (*os.File, error) {
	if !t.isKernel {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat(int(t.folderFile.Fd()), t.name, flags|unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s: no process reads from it", t.path)
	} else if err != nil {
		return nil, t.pathError("open", err)
	}
	f := os.NewFile(uintptr(fd), t.path)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Dev != t.stat.Dev || now.Ino != t.stat.Ino {
		f.Close()
		return nil, fmt.Errorf("%s was exchanged while it was opened", t.path)
	}
	return f, nil
}

// openAlone is open for a regular file that is written in place. It rejects hard links, which could
// be names of another user's file.
func (t *target) openAlone(flags int) (*os.File, error) {
	if t.stat.Nlink > 1 {
		return nil, fmt.Errorf("%s has %d names (hard links); remove it, or write to another file", t.path, t.stat.Nlink)
	}
	return t.open(flags)
}

// create creates the missing file. With the error fs.ErrExist there is one now.
func (t *target) create(flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(int(t.folderFile.Fd()), t.name, flags|unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, t.pathError("open", err)
	}
	return os.NewFile(uintptr(fd), t.path), nil
}

func (t *target) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: t.path, Err: err}
}

// close ends the use of the folder.
func (t *target) close() {
	if t.folderFile != nil {
		t.folderFile.Close()
	}
	if t.folder != nil {
		t.folder.Close()
	}
}
