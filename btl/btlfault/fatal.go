package btlfault

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// hang is what a library does that waits for what never comes. Its goroutine
// sleeps: one that is blocked for ever Go itself would notice.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// crash is what a library does that writes where it may not. The process ends as
// Go ends it, with the signal's name on standard error.
func crash() {
	_ = unix.Kill(os.Getpid(), unix.SIGSEGV) // can't fail
	hang()                                   // until the signal has come
}
