// Package segment creates and maps files in shared memory. A file is created exclusively with mode
// 0600, its space is reserved, and its owner holds a file lock. The lock distinguishes segments of
// dead owners from those of live ones, also among containers that share /dev/shm but not their
// process ids.
package segment

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// PageSize is the unit of the offset in Segment.Map. It is the largest page size of the supported
// machines, so that offsets are valid on all of them.
const PageSize = 64 << 10

// Segment is an open segment. Close it after the last Map. Mappings outlive it.
type Segment interface {
	Path() string

	// Size returns the length of the segment. For a segment of another process, it is the length at
	// the last Open or Map.
	Size() int64

	// Grow extends the segment to at least size bytes and reserves the space, so that a shortage is
	// an error here and not a fault at the first access.
	Grow(size int64) error

	// Map maps length bytes at offset, a multiple of PageSize. The range must be inside the current
	// segment, because an access past its end faults.
	Map(offset int64, length int) (*Mapping, error)

	// Discard returns the memory from offset, a multiple of the page size, to the end to the
	// system. Existing mappings read zeros there from then on. A file system without support
	// releases the memory with the last mapping.
	Discard(offset int64) error

	// Mark sets the owner's mark, a lock on length bytes from start, which need not be inside the
	// segment. The kernel records the process id of the holder, so that no process can set the mark
	// of another one. The mark lasts until this Segment is closed, even if the process opens and
	// closes the file again by Open or RemoveStale.
	Mark(start, length int64) error

	// Marker returns the id of the process with the mark at start, as seen by this process, and the
	// length of the mark.
	Marker(start int64) (pid int, length int64, err error)

	// Close closes the descriptor. For the owner, it also removes the name and drops the lock. The
	// memory is freed with the last mapping.
	Close() error
}

// Space creates and finds segments.
type Space interface {
	// Create creates a zeroed segment of size bytes, reserves its space and locks it. The name
	// appears only after that. It fails if the name exists.
	Create(path string, size int64) (Segment, error)

	// Open opens a segment of another process for reading and writing. The segment must belong to
	// the same user.
	Open(path string) (Segment, error)

	// RemoveStale removes the segments in dir whose names begin with prefix and whose owners are
	// dead, and returns their paths. It leaves locked segments, those of other users, and those
	// that it cannot open.
	RemoveStale(dir, prefix string) (removed []string, err error)
}

// SpaceError reports that a file system has too little space for a segment.
type SpaceError struct {
	Path string
	// Requested bytes.
	Need int64
	// Free bytes of the file system, -1 if unknown.
	Free int64
}

func (e *SpaceError) Error() string { return e.Path + ": " + e.Shortage() }

// Shortage returns the error without the path, in at most 110 bytes for another process.
func (e *SpaceError) Shortage() string {
	free := "unknown"
	if e.Free >= 0 {
		free = fmt.Sprintf("%d KiB", e.Free>>10)
	}
	return fmt.Sprintf("no space for a segment: need %d KiB, free %s; enlarge the file system (docker: --shm-size)", (e.Need+1<<10-1)>>10, free)
}

// Unwrap returns ENOSPC.
func (e *SpaceError) Unwrap() error { return unix.ENOSPC }

// checkRange returns an error if a range cannot be mapped.
func checkRange(s Segment, offset int64, length int) error {
	if offset < 0 || offset%PageSize != 0 || length <= 0 || offset > s.Size()-int64(length) {
		return fmt.Errorf("segment %s: cannot map %d bytes at %d of %d", s.Path(), length, offset, s.Size())
	}
	return nil
}

// Mapping is mapped memory. An access to Bytes after Close crashes the process, so the owner closes
// it after the last reference is gone.
type Mapping struct {
	Bytes []byte
	once  sync.Once
}

// Populate faults in all pages, for memory that is used at once. Each page would otherwise cost a
// fault of a microsecond later. It does not change the contents, and is a no-op on kernels before
// 5.14.
func (m *Mapping) Populate() { _ = unix.Madvise(m.Bytes, unix.MADV_POPULATE_WRITE) }

// Close unmaps the memory.
func (m *Mapping) Close() (err error) {
	m.once.Do(func() {
		err = unix.Munmap(m.Bytes)
		m.Bytes = nil
	})
	return err
}
