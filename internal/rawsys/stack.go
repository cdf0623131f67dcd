//go:build linux && amd64 && cgo && !race && !msan && !asan

package rawsys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stack is memory for the stack of C functions. The stack of a goroutine is too small for them
// and has no guard page. A Stack serves one call at a time.
//
// The program must link cgo. C then creates its threads, which provides errno and thread-local
// variables. Signal handlers of Go run on their own stack. Preemption requests take effect after
// the return, and profiles show the time under runtime._ExternalCode.
type Stack struct {
	memory []byte
	top    uintptr
}

// stackSize is in bytes, mostly untouched. Guard pages surround the stack.
const stackSize = 1 << 20

// NewStack allocates a Stack. The caller frees it.
func NewStack() (*Stack, error) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, stackSize+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_STACK|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("rawsys: allocate C stack: %w", err)
	}
	s := &Stack{memory: b, top: uintptr(unsafe.Pointer(&b[page+stackSize]))}
	for _, guard := range [][]byte{b[:page], b[page+stackSize:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			s.Free()
			return nil, fmt.Errorf("rawsys: allocate C stack: %w", err)
		}
	}
	return s, nil
}

// Free unmaps the memory. A second Free is a no-op.
func (s *Stack) Free() {
	if s.memory != nil {
		_ = unix.Munmap(s.memory)
		s.memory, s.top = nil, 0
	}
}

// Call calls the C function int f(void *a, void *b, void *c). The function must not block, call
// Go or retain a pointer to Go memory. A fault in it ends the program, as in a cgo call.
func (s *Stack) Call(f, a, b, c unsafe.Pointer) int {
	if s.top == 0 {
		panic("rawsys: Call on a freed Stack")
	}
	return int(call(f, s.top, a, b, c))
}

// call is in stack_amd64.s.
//
//go:noescape
func call(f unsafe.Pointer, stack uintptr, a, b, c unsafe.Pointer) int32
