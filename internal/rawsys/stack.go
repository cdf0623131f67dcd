//go:build linux && amd64 && cgo && !race && !msan && !asan

package rawsys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Stack is memory on which functions of C run in Go's place: a goroutine's own is too small for
// them, and nothing would stop them at its end. It serves one call at a time.
//
// The program has to be one with cgo, whose threads are C's: the functions have their errno, and
// their thread-local variables. Signals find Go's handlers, which have a stack of their own. What
// the scheduler asks for meanwhile happens when the function has returned, and a profile has its
// time under runtime._ExternalCode.
type Stack struct {
	memory []byte
	top    uintptr
}

// stackSize is that of a Stack, in bytes, most of which nobody touches. The page below can't be touched.
const stackSize = 1 << 20

// NewStack makes a Stack. Free it.
func NewStack() (*Stack, error) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, stackSize+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_STACK|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("a stack for C: %w", err)
	}
	s := &Stack{memory: b, top: uintptr(unsafe.Pointer(&b[page+stackSize]))}
	for _, guard := range [][]byte{b[:page], b[page+stackSize:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			s.Free()
			return nil, fmt.Errorf("a stack for C: %w", err)
		}
	}
	return s, nil
}

// Free gives the memory back. Freeing again does nothing.
func (s *Stack) Free() {
	if s.memory != nil {
		_ = unix.Munmap(s.memory)
		s.memory, s.top = nil, 0
	}
}

// Call calls int f(void *a, void *b, void *c), a function of C at this address. It must neither
// wait nor call Go, and it keeps none of the pointers to Go's memory that it is given. If it faults the program
// ends, as it would in a call of cgo's.
func (s *Stack) Call(f, a, b, c unsafe.Pointer) int {
	if s.top == 0 {
		panic("rawsys: Call on a Stack that was freed")
	}
	return int(call(f, s.top, a, b, c))
}

// call is in stack_amd64.s.
//
//go:noescape
func call(f unsafe.Pointer, stack uintptr, a, b, c unsafe.Pointer) int32
