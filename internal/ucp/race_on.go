//go:build race && cgo

package ucp

import (
	"runtime"
	"unsafe"
)

// The race detector sees nothing of what C does. These tell it.

func raceRead(buf []byte) {
	if len(buf) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(&buf[0]), len(buf))
	}
}

// Wrote tells the race detector that n bytes of buf were written by a receive that is over.
func Wrote(buf []byte, n int) {
	if n = min(n, len(buf)); n > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(&buf[0]), n)
	}
}
