// Package segment makes and maps files in shared memory: O_EXCL, mode 0600, space
// reserved, and owned through a file lock, so that a segment whose owner died is
// known from one whose owner lives, also between containers that share /dev/shm
// and not their process ids.
package segment

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// PageSize is the unit of Segment.Map's offset: the largest page of the machines
// that ferry runs on, so that offsets mean the same to all.
const PageSize = 64 << 10

// Segment is an open segment. Close it after the last Map; mappings stay.
type Segment interface {
	Path() string

	// Size returns the segment's length, for a file of another process as it was when
	// it was opened or mapped last.
	Size() int64

	// Grow makes the segment at least size bytes long and reserves the space, so
	// that a shortfall is an error here and not a fault at the first touch.
	Grow(size int64) error

	// Map maps length bytes from offset, which is a multiple of PageSize. The range
	// must be inside the segment as it is now: bytes behind its end would fault.
	Map(offset int64, length int) (*Mapping, error)

	// Discard gives the memory from offset, a multiple of the page size, to the end
	// back to the system, also while others map it: they find zeros there from then
	// on. A file system that can't do that gives it back with the last mapping.
	Discard(offset int64) error

	// Mark sets the owner's mark: a lock on length bytes from start, which need not be in the segment. The kernel
	// keeps the process id of the lock's holder, so that no process can set the mark of another one. It lasts
	// until this Segment is closed, also if the process opens and closes the file again by Open or RemoveStale.
	Mark(start, length int64) error

	// Marker returns the id of the process that has set the mark at start, as this process sees it, and the
	// mark's length.
	Marker(start int64) (pid int, length int64, err error)

	// Close closes the descriptor. For the owner it removes the name and drops the
	// lock: the segment is gone as soon as nobody maps it.
	Close() error
}

// Space is where segments are made and found.
type Space interface {
	// Create makes a segment of size bytes, zeroed, its space reserved, locked by
	// this process. The name appears only when all of that is done. It fails if the
	// name exists.
	Create(path string, size int64) (Segment, error)

	// Open opens another process's segment for reading and writing. It must belong
	// to the same user.
	Open(path string) (Segment, error)

	// RemoveStale removes the segments in dir whose names begin with prefix and
	// whose owner is gone, and returns their paths. A segment whose lock can't be
	// taken belongs to somebody alive and stays; so does what belongs to others or
	// can't be opened.
	RemoveStale(dir, prefix string) (removed []string, err error)
}

// SpaceError says that a file system has no room for a segment.
type SpaceError struct {
	Path string
	Need int64 // bytes asked for
	Free int64 // bytes that the file system has, -1 if unknown
}

func (e *SpaceError) Error() string { return e.Path + ": " + e.Shortage() }

// Shortage is the error without the path, for another process: 110 bytes.
func (e *SpaceError) Shortage() string {
	free := "unknown"
	if e.Free >= 0 {
		free = fmt.Sprintf("%d KiB", e.Free>>10)
	}
	return fmt.Sprintf("no space for a segment: need %d KiB, free %s; enlarge the file system (docker: --shm-size)", (e.Need+1<<10-1)>>10, free)
}

// Unwrap returns ENOSPC.
func (e *SpaceError) Unwrap() error { return unix.ENOSPC }

// inside says whether a range can be mapped.
func inside(s Segment, offset int64, length int) error {
	if offset < 0 || offset%PageSize != 0 || length <= 0 || offset > s.Size()-int64(length) {
		return fmt.Errorf("segment %s: mapping %d bytes at %d of %d", s.Path(), length, offset, s.Size())
	}
	return nil
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
