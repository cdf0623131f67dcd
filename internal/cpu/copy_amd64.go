//go:build !race

package cpu

import (
	"unsafe"

	xcpu "golang.org/x/sys/cpu"
)

// copyMin is the size from which REP MOVSB is worth its start, in bytes.
const copyMin = 1 << 10

var fastStrings = xcpu.X86.HasERMS

// CopyShared is copy for memory that one core writes and another reads. The
// processor's own string copy takes whole lines without reading them first, which
// ordinary stores have to do when another core has the line: 4 KiB from one
// process to another went from 0.38 to 0.24 us, 16 KiB from 0.80 to 0.56.
func CopyShared(dst, src []byte) {
	if len(src) < copyMin {
		copy(dst, src)
		return
	}
	copyLarge(dst, src)
}

func copyLarge(dst, src []byte) {
	if !fastStrings || len(dst) < len(src) || aliased(&dst[0], &src[0]) {
		copy(dst, src)
		return
	}
	copyStrings(&dst[0], &src[0], len(src))
}

// aliased reports whether dst lies less than a vector behind src within a page of 4 KiB. There
// AMD's processors of family 25 take what they store for what they are to load next: a string
// copy does 3.5 GB/s (16 bytes behind: 52), where it does 98 elsewhere, and copy 93 to 113 (16 KiB in
// the first caches).
func aliased(dst, src *byte) bool {
	const page, vector = 4 << 10, 32
	behind := (uintptr(unsafe.Pointer(dst)) - uintptr(unsafe.Pointer(src))) % page
	return 0 < behind && behind < vector
}

//go:noescape
func copyStrings(dst, src *byte, n int)

// Ticks counts time in units of the processor's, the same on all of a node. It takes less than
// a clock.
func Ticks() uint64
