//go:build !race

package cpu

import (
	"unsafe"

	xcpu "golang.org/x/sys/cpu"
)

// copyMin is the smallest size in bytes that amortizes the start of REP MOVSB.
const copyMin = 1 << 10

var fastStrings = xcpu.X86.HasERMS

// CopyShared is copy for memory that one core writes and another reads. String instructions
// own whole lines without reading them, while ordinary stores first fetch a line from the other
// core. A transfer of 4 KiB between processes dropped from 0.38 to 0.24 us, of 16 KiB from 0.80
// to 0.56 us.
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

// aliased reports whether dst follows src by less than a vector, modulo 4 KiB. AMD processors of
// family 25 then assume that loads depend on earlier stores. A string copy of 16 KiB in the first
// cache drops from 98 to 3.5 GB/s, while copy stays at 93 to 113.
func aliased(dst, src *byte) bool {
	const page, vector = 4 << 10, 32
	behind := (uintptr(unsafe.Pointer(dst)) - uintptr(unsafe.Pointer(src))) % page
	return 0 < behind && behind < vector
}

//go:noescape
func copyStrings(dst, src *byte, n int)

// Ticks returns the time-stamp counter, which all processors of a node share. It is cheaper than
// a clock.
func Ticks() uint64
