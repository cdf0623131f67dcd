package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Files is the space of files in a memory file system.
type Files struct{}

// file is an open segment of Files.
type file struct {
	path    string
	fd      int
	isOwner bool
	size    int64
	// Whether this descriptor, not another one of the same inode, has set the mark.
	hasMark bool
}

// Create implements Space.
func (Files) Create(path string, size int64) (Segment, error) {
	// An unnamed file first. No other process sees it unlocked, and a failure leaves no file.
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return createNamed(path, size)
	}
	if err != nil {
		return nil, &os.PathError{Op: "create segment in", Path: filepath.Dir(path), Err: err}
	}
	f := &file{path: path, fd: fd, isOwner: true}
	if err := errors.Join(f.setMode(), f.Grow(size)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "lock segment", Path: path, Err: err}
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.ENOENT) { // Without /proc.
			return createNamed(path, size)
		}
		return nil, &os.PathError{Op: "create segment", Path: path, Err: err}
	}
	return f, nil
}

// createNamed is Create for a file system without unnamed files, such as that of a container, and
// without /proc. Only RemoveStale of another process may find the name before this returns, and
// remove the file before it is locked.
func createNamed(path string, size int64) (Segment, error) {
	for {
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, &os.PathError{Op: "create segment", Path: path, Err: err}
		}
		f := &file{path: path, fd: fd, isOwner: true}
		if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
			return nil, errors.Join(&os.PathError{Op: "lock segment", Path: path, Err: err}, f.Close())
		}
		if st, err := f.stat(); err == nil && st.Nlink == 0 {
			unix.Close(fd)
			continue // It was removed as stale.
		}
		if err := errors.Join(f.setMode(), f.Grow(size)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}

// Open implements Space.
func (Files) Open(path string) (Segment, error) {
	of, err := checkOwnFile(path)
	if err != nil {
		return nil, err
	}
	fd := idleDescriptor(of)
	if fd < 0 {
		// O_NONBLOCK, because between the checks another user's file under a lease or a FIFO may take the name.
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open segment", Path: path, Err: err}
	}
	f := &file{path: path, fd: fd}
	st, err := f.stat()
	if err == nil {
		err = checkOwner(path, &st)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkOwnFile checks type and owner of the entry at path without following a link. It does not
// open the entry, because an open of another user's file may block on a lease of its owner or in a
// file system that its owner serves.
func checkOwnFile(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return inode{}, &os.PathError{Op: "open segment", Path: path, Err: err}
	}
	return inodeOf(&st), checkOwner(path, &st)
}

func checkOwner(path string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("segment %s: not a regular file", path)
	}
	if int(st.Uid) != unix.Geteuid() {
		return fmt.Errorf("segment %s belongs to user %d, not to %d", path, st.Uid, unix.Geteuid())
	}
	return nil
}

// RemoveStale implements Space.
func (s Files) RemoveStale(dir, prefix string) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		seg, err := s.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		f := seg.(*file)
		// Names appear locked (see Create), so a free lock means a dead owner.
		if unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB) == nil && unix.Unlink(f.path) == nil {
			removed = append(removed, f.path)
		}
		f.Close()
	}
	return removed, nil
}

// setMode gives the user access to a new file despite the umask.
func (f *file) setMode() error {
	if err := unix.Fchmod(f.fd, 0o600); err != nil {
		return &os.PathError{Op: "change mode of segment", Path: f.path, Err: err}
	}
	return nil
}

// stat returns the status of the file and updates its size.
func (f *file) stat() (st unix.Stat_t, err error) {
	if err := unix.Fstat(f.fd, &st); err != nil {
		return st, &os.PathError{Op: "stat segment", Path: f.path, Err: err}
	}
	f.size = st.Size
	return st, nil
}

func (f *file) Path() string { return f.path }

func (f *file) Size() int64 { return f.size }

func (f *file) Grow(size int64) error {
	if size <= f.size {
		return nil
	}
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(f.fd, 0, f.size, size-f.size)
	}
	if errors.Is(err, unix.EOPNOTSUPP) { // The file system cannot reserve space.
		err = unix.Ftruncate(f.fd, size)
	}
	if errors.Is(err, unix.ENOSPC) {
		free := int64(-1)
		var st unix.Statfs_t
		if unix.Fstatfs(f.fd, &st) == nil {
			free = int64(st.Bavail) * st.Bsize
		}
		unix.Ftruncate(f.fd, f.size)
		return &SpaceError{Path: f.path, Need: size - f.size, Free: free}
	}
	if err != nil {
		return &os.PathError{Op: "reserve space for segment", Path: f.path, Err: err}
	}
	f.size = size
	return nil
}

func (f *file) Map(offset int64, length int) (*Mapping, error) {
	if _, err := f.stat(); err != nil {
		return nil, err
	}
	if err := checkRange(f, offset, length); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(f.fd, offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "map segment", Path: f.path, Err: err}
	}
	return &Mapping{Bytes: b}, nil
}

func (f *file) Discard(offset int64) error {
	if offset >= f.size {
		return nil
	}
	err := unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, f.size-offset)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return &os.PathError{Op: "release memory of segment", Path: f.path, Err: err}
	}
	return nil
}

func (f *file) Close() error {
	if f.fd < 0 {
		return nil
	}
	var err error
	if f.isOwner {
		err = f.unlink()
	}
	err = errors.Join(err, f.closeDescriptor())
	f.fd = -1
	return err
}

// unlink removes the name, unless it has gone. A process that has changed its user since the
// segment was created may lack the permission.
func (f *file) unlink() error {
	err := unix.Unlink(f.path)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	failed := &os.PathError{Op: "remove segment", Path: f.path, Err: err}
	st, err := f.stat()
	if err != nil || int(st.Uid) == unix.Geteuid() {
		return failed
	}
	return fmt.Errorf("%w: created by user %d, process is user %d: close the session before setuid; the next session of user %d removes the file", failed, st.Uid, unix.Geteuid(), st.Uid)
}
