package mpi

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Memory is memory that other processes of the node read directly. A large message from it is copied once, into the receiver's buffer. See View.
type Memory struct {
	session *Session
	bytes   []byte
	// nil for ordinary memory.
	allocator pml.Allocator

	mu       sync.Mutex
	isClosed bool
}

// AllocMem returns zeroed memory (MPI_Alloc_mem). It is ordinary memory if no transport provides a special kind. It stays allocated until Close, and the
// session cannot be closed before. Errors are ErrUnsupported for a size that is negative or beyond the address space, and an error with the missing
// resource if there is no room.
func AllocMem(s *Session, bytes int) (*Memory, error) {
	const most = 1 << 46 // Half of a 47-bit address space.
	if bytes < 0 || bytes > most {
		return nil, fmt.Errorf("%w: memory of %d bytes", ErrUnsupported, bytes)
	}
	if err := s.hold(&s.memoryCount); err != nil {
		return nil, err
	}
	m, err := s.process.allocate(bytes)
	if err != nil {
		s.drop(&s.memoryCount)
		return nil, fmt.Errorf("memory of %d bytes: %w", bytes, err)
	}
	m.session = s
	return m, nil
}

// memoryAlign suits every element type, and keeps pieces apart in the cache.
const memoryAlign = 64

func (e *process) allocate(bytes int) (*Memory, error) {
	if bytes == 0 {
		return &Memory{}, nil
	}
	for _, m := range e.PMLs() {
		from, ok := framework.As[pml.Allocator](m.Module)
		if !ok {
			continue
		}
		b, err := from.Allocate(bytes)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e.transportMemory.add(b)
		return &Memory{bytes: b, allocator: from}, nil
	}
	// Go aligns large allocations.
	return &Memory{bytes: make([]byte, (bytes+memoryAlign-1)&^(memoryAlign-1))[:bytes:bytes]}, nil
}

// View returns the memory as a slice of as many elements of type T as fit. It returns nil after Close, and for a type with pointers. Views share the
// memory. They must not be used after Close. Access to memory of a transport would then crash the program.
func View[T any](m *Memory) []T {
	if !mem.PointerFree[T]() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed {
		return nil
	}
	return mem.Of[T](m.bytes)
}

// Close frees the memory (MPI_Free_mem). It returns ErrPending without effect while an operation uses the memory. A second Close returns ErrClosed.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed {
		return fmt.Errorf("%w: the memory is closed", ErrClosed)
	}
	if m.allocator != nil {
		// Once it is free another goroutine may allocate memory at its address.
		r := &m.session.process.transportMemory
		r.remove(m.bytes)
		err := m.session.process.ranksUse(m.bytes)
		if err == nil {
			err = m.session.process.streamsUse(m.bytes)
		}
		if err == nil {
			err = m.session.process.partitionsUse(m.bytes)
		}
		if err == nil {
			err = m.allocator.Free(m.bytes)
		}
		if err != nil {
			r.add(m.bytes)
			return err
		}
	}
	m.isClosed = true
	m.bytes = nil
	m.session.drop(&m.session.memoryCount)
	return nil
}

// streamsUse returns ErrPending if an operation of a stream uses the memory.
func (e *process) streamsUse(memory []byte) error {
	for _, st := range e.streams() {
		for _, m := range st.commSession.process.Upper() {
			if u, ok := framework.As[pml.MemoryUser](m.Module); ok && u.Uses(memory) {
				return fmt.Errorf("%w: an operation of %v uses the memory", ErrPending, st)
			}
		}
	}
	return nil
}

// transportMemory finds memory of transports. Every large send reads it. It changes seldom.
type transportMemory struct {
	mu      sync.Mutex
	regions atomic.Pointer[[][]byte]
}

func (r *transportMemory) add(b []byte) {
	r.change(func(list [][]byte) [][]byte { return append(list, b) })
}

func (r *transportMemory) remove(b []byte) {
	r.change(func(list [][]byte) [][]byte {
		return slices.DeleteFunc(list, func(x []byte) bool { return &x[0] == &b[0] })
	})
}

func (r *transportMemory) change(f func([][]byte) [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list [][]byte
	if old := r.regions.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = f(list)
	r.regions.Store(&list)
}

// formOf returns the form of a send's memory. The cost for a small message is one comparison.
func (c *Comm) formOf(buf []byte) *pml.Form {
	if len(buf) < run.MinFormBytes {
		return nil
	}
	return c.session.process.transportMemory.formOf(buf)
}

// formOf stays a call, so that the compare before it is inlined into every send.
//
//go:noinline
func (r *transportMemory) formOf(buf []byte) *pml.Form {
	list := r.regions.Load()
	if list == nil {
		return nil
	}
	for _, b := range *list {
		if mem.Within(b, buf) {
			return pml.InRegistered
		}
	}
	return nil
}
