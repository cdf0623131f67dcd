//go:build !linux || !amd64 || !cgo || race || msan || asan

package rawsys

import (
	"errors"
	"unsafe"
)

// Stack is not supported in this build.
type Stack struct{}

// NewStack returns errors.ErrUnsupported. Callers fall back to cgo.
func NewStack() (*Stack, error) { return nil, errors.ErrUnsupported }

// Free is a no-op.
func (*Stack) Free() {}

// Call panics.
func (*Stack) Call(f, a, b, c unsafe.Pointer) int { panic("rawsys: Call without a Stack") }
