package shm

import (
	"errors"
	"runtime/debug"
)

var errTruncated = errors.New("the peer truncated its segment")

// guarded calls f, which accesses a peer's segment. Any process of the user can truncate the file
// at any time, and an access past the new end faults. guarded turns the fault into an error. It
// costs 50 instructions, so the path of every message does without it
// (docs/decisions/cut-segments.md).
func guarded(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = errTruncated
		default:
			panic(r)
		}
	}()
	return f()
}

// ringSender rings the sender's bell. The sender may have exited and its segment may be truncated.
func (p *inbound) ringSender() { _ = guarded(func() error { p.bell.Ring(); return nil }) }
