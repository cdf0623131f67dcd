package segment

import (
	"os"
	"sync"

	"github.com/ferrympi/ferry/internal/ring"
)

// Heap is a space of segments in Go memory, for several "processes" inside one
// test: the race detector sees what happens there. The zero value is empty.
type Heap struct {
	mu       sync.Mutex
	segments map[string]*heapSegment
}

// heapCapacity is the largest heap segment: growing must not move it.
const heapCapacity = 8 << 20

type heapSegment struct {
	heap *Heap
	path string
	mem  []byte
	mu   sync.Mutex
	size int64
	of   *heapSegment // the owner's: for the owner itself

	markStart, markLength int64
}

// Create implements Space.
func (h *Heap) Create(path string, size int64) (Segment, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.segments[path] != nil {
		return nil, &os.PathError{Op: "create segment", Path: path, Err: os.ErrExist}
	}
	s := &heapSegment{heap: h, path: path, mem: ring.Aligned(heapCapacity)}
	s.of = s
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
	return &heapSegment{heap: h, path: path, mem: s.mem, of: s}, nil
}

// RemoveStale finds nothing: heap segments go with their process.
func (h *Heap) RemoveStale(string, string) ([]string, error) { return nil, nil }

func (s *heapSegment) Path() string { return s.path }

func (s *heapSegment) Size() int64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.of.size
}

func (s *heapSegment) Grow(size int64) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if size > heapCapacity {
		return &SpaceError{Path: s.path, Need: size, Free: heapCapacity}
	}
	s.of.size = max(s.of.size, size)
	return nil
}

func (s *heapSegment) Map(offset int64, length int) (*Mapping, error) {
	if err := inside(s, offset, length); err != nil {
		return nil, err
	}
	m := &Mapping{Bytes: s.mem[offset : offset+int64(length) : offset+int64(length)]}
	m.once.Do(func() {}) // nothing to unmap
	return m, nil
}

// Discard has nothing to give back early: the collector does it.
func (s *heapSegment) Discard(int64) error { return nil }

func (s *heapSegment) Close() error {
	if s.of == s {
		s.heap.mu.Lock()
		delete(s.heap.segments, s.path)
		s.heap.mu.Unlock()
	}
	return nil
}
