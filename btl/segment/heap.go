package segment

import (
	"os"
	"sync"

	"github.com/ferrympi/ferry/internal/ring"
)

// Heap is a space of segments in Go memory for several simulated processes inside one test, which
// the race detector observes. The zero value is empty.
type Heap struct {
	mu       sync.Mutex
	segments map[string]*heapSegment
}

// heapCapacity is the maximum size of a segment, whose memory must not move when it grows.
const heapCapacity = 8 << 20

type heapSegment struct {
	heap   *Heap
	path   string
	memory []byte
	mu     sync.Mutex
	size   int64
	// The owner's segment, which is the segment itself for the owner.
	owner *heapSegment

	markStart, markLength int64
}

// Create implements Space.
func (h *Heap) Create(path string, size int64) (Segment, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.segments[path] != nil {
		return nil, &os.PathError{Op: "create segment", Path: path, Err: os.ErrExist}
	}
	s := &heapSegment{heap: h, path: path, memory: ring.Aligned(heapCapacity)}
	s.owner = s
	if err := s.Grow(size); err != nil {
		return nil, err
	}
	if h.segments == nil {
		h.segments = map[string]*heapSegment{}
	}
	h.segments[path] = s
	return s, nil
}

// Open implements Space.
func (h *Heap) Open(path string) (Segment, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.segments[path]
	if s == nil {
		return nil, &os.PathError{Op: "open segment", Path: path, Err: os.ErrNotExist}
	}
	return &heapSegment{heap: h, path: path, memory: s.memory, owner: s}, nil
}

// RemoveStale is a no-op, because heap segments end with their process.
func (h *Heap) RemoveStale(string, string) ([]string, error) { return nil, nil }

func (s *heapSegment) Path() string { return s.path }

func (s *heapSegment) Size() int64 {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	return s.owner.size
}

func (s *heapSegment) Grow(size int64) error {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	if size > heapCapacity {
		return &SpaceError{Path: s.path, Need: size, Free: heapCapacity}
	}
	s.owner.size = max(s.owner.size, size)
	return nil
}

func (s *heapSegment) Map(offset int64, length int) (*Mapping, error) {
	if err := checkRange(s, offset, length); err != nil {
		return nil, err
	}
	m := &Mapping{Bytes: s.memory[offset : offset+int64(length) : offset+int64(length)]}
	m.once.Do(func() {}) // There is nothing to unmap.
	return m, nil
}

// Discard is a no-op. The garbage collector frees the memory.
func (s *heapSegment) Discard(int64) error { return nil }

func (s *heapSegment) Close() error {
	if s.owner == s {
		s.heap.mu.Lock()
		delete(s.heap.segments, s.path)
		s.heap.mu.Unlock()
	}
	return nil
}
