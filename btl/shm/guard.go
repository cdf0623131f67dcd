package shm

import (
	"errors"
	"runtime/debug"
)

var errCut = errors.New("the peer truncated its segment")

// guarded calls f, which touches a peer's segment. Any process of the user can cut the
// file short at any time, and touching memory past the new end is a fault: an error
// here. It costs 50 instructions, which what every message takes does without:
// docs/decisions/cut-segments.md.
func guarded(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = errCut
		default:
			panic(r)
		}
	}()
	return f()
}

// ring rings a bell for a process that may have gone, with its segment.
func (p *inbound) ring() { _ = guarded(func() error { p.bell.Ring(); return nil }) }
