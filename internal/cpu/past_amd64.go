//go:build !race

package cpu

import "unsafe"

// Streams says that CopyPast is another way to copy than CopyShared.
const Streams = true

// pastMin is the size from which CopyPast goes past the caches, in bytes.
const pastMin = 4 << 10

// CopyPast is copy for memory that one core writes and another reads, past the caches: the
// lines go to memory, and need not be taken from the core whose cache has them. Where that
// core is far away it is 5 to 7 times as fast (2 to 14 GB/s, EPYC of family 25); where both
// share a cache it is slower as a rule.
func CopyPast(dst, src []byte) {
	if len(src) < pastMin || len(dst) < len(src) {
		CopyShared(dst, src)
		return
	}
	const line = 64
	head := int(-uintptr(unsafe.Pointer(&dst[0])) % line)
	n := (len(src) - head) &^ (line - 1)
	copy(dst[:head], src[:head])
	copyPast(&dst[head], &src[head], n)
	copy(dst[head+n:], src[head+n:])
}

// copyPast copies n bytes, a multiple of 64 and not 0, to whole lines. What is stored behind it
// is seen later by others.
//
//go:noescape
func copyPast(dst, src *byte, n int)
