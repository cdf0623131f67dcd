//go:build race && cgo

package ucp

import (
	"runtime"
	"unsafe"
)

// The race detector does not observe C. These functions report its accesses.

func raceRead(buf []byte) {
	if len(buf) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&buf[0]), len(buf))
	}
}

// Wrote reports to the race detector that a completed receive has written n bytes of buf.
func Wrote(buf []byte, n int) {
	if n = min(n, len(buf)); n > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&buf[0]), n)
	}
}
