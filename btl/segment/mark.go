package segment

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// markKey identifies a mark of this process.
type markKey struct {
	device, inode uint64
	start         int64
}

// ownMarks has the marks of this process, with their lengths. The kernel does not report a process's own
// locks to it.
var ownMarks sync.Map

var errNoMark = errors.New("no process has locked its mark")

func (f *file) markKey(start int64) (markKey, error) {
	st, err := f.look()
	return markKey{uint64(st.Dev), st.Ino, start}, err
}

// Mark implements Segment, by a lock of fcntl.
func (f *file) Mark(start, length int64) error {
	key, err := f.markKey(start)
	if err != nil {
		return err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: length}
	if err := unix.FcntlFlock(uintptr(f.fd), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("mark segment %s: %w", f.path, err)
	}
	f.mark = key
	ownMarks.Store(key, length)
	return nil
}

// Marker implements Segment.
func (f *file) Marker(start int64) (pid int, length int64, err error) {
	key, err := f.markKey(start)
	if err != nil {
		return 0, 0, err
	}
	if own, ok := ownMarks.Load(key); ok {
		return unix.Getpid(), own.(int64), nil
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

// Mark implements Segment.
func (s *heapSegment) Mark(start, length int64) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.markStart, s.of.markLength = start, length
	return nil
}

// Marker implements Segment. All processes of a Heap are this one.
func (s *heapSegment) Marker(start int64) (pid int, length int64, err error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.markLength == 0 || s.of.markStart != start {
		return 0, 0, fmt.Errorf("segment %s: %w", s.path, errNoMark)
	}
	return unix.Getpid(), s.of.markLength, nil
}
