package segment

import (
	"fmt"
	"os"
	"sync"

	"github.com/ferrympi/ferry/internal/ring"
)

// Segment is what a transport needs of a segment: *File, or a heap segment.
type Segment interface {
	Path() string
	Size() int64
	Refresh() (int64, error)
	Grow(size int64) error
	Map(offset int64, length int) (*Mapping, error)
	Discard(offset int64) error
	Close() error
}

// Space is where segments are made and found.
type Space interface {
	Create(path string, size int64) (Segment, error)
	Open(path string) (Segment, error)
	RemoveStale(dir, prefix string) ([]string, error)
}

// Files is the space of files in shared memory.
type Files struct{}

// Create is the function Create.
func (Files) Create(path string, size int64) (Segment, error) {
	f, err := Create(path, size)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open is the function Open.
func (Files) Open(path string) (Segment, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// RemoveStale is the function RemoveStale.
func (Files) RemoveStale(dir, prefix string) ([]string, error) { return RemoveStale(dir, prefix) }

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
	own  bool
	of   *heapSegment // the owner's, for one that was opened
}

// Create makes a segment.
func (h *Heap) Create(path string, size int64) (Segment, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.segments[path] != nil {
		return nil, &os.PathError{Op: "create segment", Path: path, Err: os.ErrExist}
	}
	s := &heapSegment{heap: h, path: path, mem: ring.Aligned(heapCapacity), own: true}
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

// Open finds a segment.
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

func (s *heapSegment) Size() int64 { n, _ := s.Refresh(); return n }

func (s *heapSegment) Refresh() (int64, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.of.size, nil
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
	if offset < 0 || offset%PageSize != 0 || length <= 0 || offset > s.Size()-int64(length) {
		return nil, fmt.Errorf("segment %s: mapping %d bytes at %d of %d", s.path, length, offset, s.Size())
	}
	m := &Mapping{Bytes: s.mem[offset : offset+int64(length) : offset+int64(length)]}
	m.once.Do(func() {}) // nothing to unmap
	return m, nil
}

// Discard has nothing to give back early: the collector does it.
func (s *heapSegment) Discard(int64) error { return nil }

func (s *heapSegment) Close() error {
	if s.own {
		s.heap.mu.Lock()
		delete(s.heap.segments, s.path)
		s.heap.mu.Unlock()
	}
	return nil
}
