// Package segment makes and maps files in shared memory: O_EXCL, mode 0600, space
// reserved, and owned through a file lock, so that a segment whose owner died is
// known from one whose owner lives, also between containers that share /dev/shm
// and not their process ids.
package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is where segments are by default: memory, on every Linux machine.
const Dir = "/dev/shm"

// PageSize is the unit of File.Map's offset: the largest page of the machines
// that ferry runs on, so that offsets mean the same to all.
const PageSize = 64 << 10

// SpaceError says that a file system has no room for a segment.
type SpaceError struct {
	Path string
	Need int64 // bytes asked for
	Free int64 // bytes that the file system has, -1 if unknown
}

func (e *SpaceError) Error() string {
	free := "unknown"
	if e.Free >= 0 {
		free = fmt.Sprintf("%d KiB", e.Free>>10)
	}
	return fmt.Sprintf("%s: no space for a segment: need %d KiB, free %s, short of %d KiB; enlarge the file system (docker: --shm-size) or choose another directory",
		e.Path, e.Need>>10, free, (e.Need-max(e.Free, 0))>>10)
}

// Unwrap returns ENOSPC.
func (e *SpaceError) Unwrap() error { return unix.ENOSPC }

// File is an open segment. Close it after the last Map; mappings stay.
type File struct {
	path string
	fd   int
	own  bool
	size int64
}

// Create makes a segment of size bytes, zeroed, its space reserved, locked by
// this process. The name appears only when all of that is done. It fails if the
// name exists.
func Create(path string, size int64) (*File, error) {
	// An unnamed file first: nobody can see it unlocked, and nothing is left
	// if we fail half-way.
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create segment in", Path: filepath.Dir(path), Err: err}
	}
	f := &File{path: path, fd: fd, own: true}
	if err := f.Grow(size); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "lock segment", Path: path, Err: err}
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "create segment", Path: path, Err: err}
	}
	return f, nil
}

// Grow makes the segment at least size bytes long and reserves the space, so
// that a shortfall is an error here and not a fault at the first touch.
func (f *File) Grow(size int64) error {
	if size <= f.size {
		return nil
	}
	var err error
	for {
		err = unix.Fallocate(f.fd, 0, f.size, size-f.size)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EOPNOTSUPP) { // a file system that reserves nothing
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

// Open opens another process's segment for reading and writing. It must belong
// to the same user.
func Open(path string) (*File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open segment", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "stat segment", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != unix.Geteuid() {
		unix.Close(fd)
		return nil, fmt.Errorf("segment %s belongs to user %d, not to %d", path, st.Uid, unix.Geteuid())
	}
	return &File{path: path, fd: fd, size: st.Size}, nil
}

// Path returns the segment's path.
func (f *File) Path() string { return f.path }

// Size returns the segment's length when it was opened, or as it has grown here.
func (f *File) Size() int64 { return f.size }

// Refresh looks how long the segment is now and returns that.
func (f *File) Refresh() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat segment", Path: f.path, Err: err}
	}
	f.size = st.Size
	return f.size, nil
}

// Map maps length bytes from offset, which is a multiple of PageSize. The range
// must be inside the segment: bytes behind its end would fault.
func (f *File) Map(offset int64, length int) (*Mapping, error) {
	if offset < 0 || offset%PageSize != 0 || length <= 0 || offset > f.size-int64(length) {
		return nil, fmt.Errorf("segment %s: mapping %d bytes at %d of %d", f.path, length, offset, f.size)
	}
	b, err := unix.Mmap(f.fd, offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "map segment", Path: f.path, Err: err}
	}
	return &Mapping{Bytes: b}, nil
}

// Discard gives the memory from offset, a multiple of the page size, to the end
// back to the system, also while others map it: they find zeros there from then
// on. A file system that can't do that gives it back with the last mapping.
func (f *File) Discard(offset int64) error {
	if offset >= f.size {
		return nil
	}
	err := unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, f.size-offset)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return &os.PathError{Op: "give back memory of segment", Path: f.path, Err: err}
	}
	return nil
}

// Close closes the descriptor. For the owner it removes the name and drops the
// lock: the segment is gone as soon as nobody maps it.
func (f *File) Close() error {
	if f.fd < 0 {
		return nil
	}
	var err error
	if f.own {
		err = unix.Unlink(f.path)
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
	}
	err = errors.Join(err, unix.Close(f.fd))
	f.fd = -1
	return err
}

// Mapping is mapped memory. Using Bytes after Close is a crash: its owner closes
// it when nothing refers to it any more.
type Mapping struct {
	Bytes []byte
	once  sync.Once
}

// Populate has the kernel map all pages now, for memory that is used at once: a
// fault per page, a microsecond each, comes later otherwise. It changes nothing
// that is there, and does nothing on kernels before 5.14.
func (m *Mapping) Populate() { _ = unix.Madvise(m.Bytes, unix.MADV_POPULATE_WRITE) }

// Close unmaps.
func (m *Mapping) Close() (err error) {
	m.once.Do(func() {
		err = unix.Munmap(m.Bytes)
		m.Bytes = nil
	})
	return err
}

// RemoveStale removes the segments in dir whose names begin with prefix and
// whose owner is gone, and returns their paths. A segment whose lock can't be
// taken belongs to somebody alive and stays; so does what belongs to others or
// can't be opened.
func RemoveStale(dir, prefix string) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		f, err := Open(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		// Names appear locked (see Create), so a free lock means a dead owner.
		if unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB) == nil && unix.Unlink(f.path) == nil {
			removed = append(removed, f.path)
		}
		unix.Close(f.fd)
	}
	return removed, nil
}
