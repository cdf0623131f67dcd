//go:build !linux || !amd64 || !cgo || race || msan || asan

package rawsys

import (
	"errors"
	"unsafe"
)

// A Stack is memory on which functions of C run; here there is none.
type Stack struct{}

// NewStack returns why there is none: callers use cgo.
func NewStack() (*Stack, error) { return nil, errors.ErrUnsupported }

// What follows is never reached: there is no Stack.

func (*Stack) Free() {}

func (*Stack) Call(f, a, b, c unsafe.Pointer) int { panic("rawsys: no stack") }
