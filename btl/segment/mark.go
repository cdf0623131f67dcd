package segment

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// inode identifies a file.
type inode struct{ device, number uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} }

// ownMark is a mark of this process.
type ownMark struct {
	start, length int64
	// Descriptors of closed segments, for the next Open. Closing one would drop the mark.
	idle []int
}

// ownMarks has the marks of this process. The kernel does not report a process's own locks to it,
// and drops them when the process closes any descriptor of the file.
var ownMarks = struct {
	sync.Mutex
	byInode map[inode]*ownMark
}{byInode: map[inode]*ownMark{}}

var errNoMark = errors.New("no process has locked its mark")

// Mark implements Segment, by a lock of fcntl.
func (f *file) Mark(start, length int64) error {
	st, err := f.stat()
	if err != nil {
		return err
	}
	ownMarks.Lock()
	defer ownMarks.Unlock()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: length}
	if err := unix.FcntlFlock(uintptr(f.fd), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("mark segment %s: %w", f.path, err)
	}
	f.hasMark = true
	ownMarks.byInode[inodeOf(&st)] = &ownMark{start: start, length: length}
	return nil
}

// idleDescriptor returns a descriptor of a marked file that an earlier segment has left, or -1.
func idleDescriptor(of inode) int {
	ownMarks.Lock()
	defer ownMarks.Unlock()
	own := ownMarks.byInode[of]
	if own == nil || len(own.idle) == 0 {
		return -1
	}
	last := len(own.idle) - 1
	fd := own.idle[last]
	own.idle = own.idle[:last]
	return fd
}

// closeDescriptor closes the descriptor, unless another segment of this process has marked the
// file. The descriptor then stays idle until that segment is closed.
func (f *file) closeDescriptor() error {
	ownMarks.Lock()
	defer ownMarks.Unlock()
	st, err := f.stat()
	own := ownMarks.byInode[inodeOf(&st)]
	if err != nil || own == nil {
		return unix.Close(f.fd)
	}
	if !f.hasMark {
		own.idle = append(own.idle, f.fd)
		return nil
	}
	delete(ownMarks.byInode, inodeOf(&st))
	err = unix.Close(f.fd)
	for _, fd := range own.idle {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// Marker implements Segment.
func (f *file) Marker(start int64) (pid int, length int64, err error) {
	st, err := f.stat()
	if err != nil {
		return 0, 0, err
	}
	if length, ok := lengthOfOwnMark(inodeOf(&st), start); ok {
		return unix.Getpid(), length, nil
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: 1}
	if err := unix.FcntlFlock(uintptr(f.fd), unix.F_GETLK, &lock); err != nil {
		return 0, 0, fmt.Errorf("mark of segment %s: %w", f.path, err)
	}
	// A lock that only covers start is the mark of another identity.
	if lock.Type == unix.F_UNLCK || lock.Start != start {
		return 0, 0, fmt.Errorf("segment %s: %w", f.path, errNoMark)
	}
	if lock.Pid <= 0 {
		return 0, 0, fmt.Errorf("segment %s: its owner has no process id here (another container)", f.path)
	}
	return int(lock.Pid), lock.Len, nil
}

func lengthOfOwnMark(of inode, start int64) (length int64, ok bool) {
	ownMarks.Lock()
	defer ownMarks.Unlock()
	own := ownMarks.byInode[of]
	if own == nil || own.start != start {
		return 0, false
	}
	return own.length, true
}

// Mark implements Segment.
func (s *heapSegment) Mark(start, length int64) error {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	s.owner.markStart, s.owner.markLength = start, length
	return nil
}

// Marker implements Segment. All processes of a Heap are this one.
func (s *heapSegment) Marker(start int64) (pid int, length int64, err error) {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	if s.owner.markLength == 0 || s.owner.markStart != start {
		return 0, 0, fmt.Errorf("segment %s: %w", s.path, errNoMark)
	}
	return unix.Getpid(), s.owner.markLength, nil
}
