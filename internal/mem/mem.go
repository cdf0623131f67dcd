// Package mem converts between typed slices and their bytes. It has the unsafe code of the generic
// functions of package mpi.
package mem

import (
	"context"
	"reflect"
	"unsafe"
)

// Bytes returns the memory of s. The result is valid as long as s is. It contains pointers unless
// PointerFree of T is true.
func Bytes[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// Of returns the memory of b as elements of type T. It omits an incomplete last one. b must be
// aligned for T, and Of panics otherwise.
func Of[T any](b []byte) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if size == 0 || len(b) < size {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		panic("mem: unaligned memory")
	}
	return unsafe.Slice((*T)(p), len(b)/size)
}

// Size returns the size of T in bytes.
func Size[T any]() int {
	var t T
	return int(unsafe.Sizeof(t))
}

// PointerFree reports whether values of type T contain no pointers, so that their bytes are valid in
// another process. It costs a switch for basic types.
func PointerFree[T any]() bool {
	var t T
	switch any(t).(type) {
	case byte, int8, uint16, int16, uint32, int32, uint64, int64, int, uint, float32, float64, complex64, complex128, bool:
		return true
	}
	return pointerFree(reflect.TypeFor[T]())
}

func pointerFree(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return t.Len() == 0 || pointerFree(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !pointerFree(f.Type) {
				return false
			}
		}
		return true
	}
	return false // Includes uintptr, because an address is invalid in another process.
}

// ContextType returns a number that identifies the dynamic type of a context, 0 for nil. It is the
// first word of the interface value, and costs one load.
func ContextType(ctx context.Context) uintptr { return *(*uintptr)(unsafe.Pointer(&ctx)) }

// Within reports whether the memory of outer contains that of inner.
func Within(outer, inner []byte) bool {
	begin, from := uintptr(unsafe.Pointer(unsafe.SliceData(outer))), uintptr(unsafe.Pointer(unsafe.SliceData(inner)))
	return from >= begin && from-begin <= uintptr(len(outer)) && uintptr(len(inner)) <= uintptr(len(outer))-(from-begin)
}

// Overlap reports whether a and b share a byte.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
