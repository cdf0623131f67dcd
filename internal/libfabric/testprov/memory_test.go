package testprov_test

import "unsafe"

// bytesAt is memory that Go's runtime has not made.
func bytesAt(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }
