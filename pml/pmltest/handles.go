package pmltest

import (
	"runtime"
	"testing"
)

// manyHandles is the number of ranks that one process may have, and bytesPerHandle bounds the
// memory that a PML takes for each until it exchanges messages.
const (
	manyHandles    = 10000
	bytesPerHandle = 4 << 10
)

// Handles has two processes with many ranks each make the handles of all. Tables by rank in
// each handle would take 80 KB apiece.
func Handles(t *testing.T, stack Stack) {
	w := OpenWorld(t, stack, 2)
	e := w.Endpoints(manyHandles, manyHandles)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := e.JoinAll(); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := int64(after.HeapAlloc-before.HeapAlloc) / (2 * manyHandles); each > bytesPerHandle {
		t.Errorf("a handle takes %d bytes, at most %d are meant to be", each, bytesPerHandle)
	}
	for _, c := range e.Comms {
		c.Close()
	}
	for i, p := range w.Procs {
		if _, live, resting := p.Module.CIDs().Counts(); live+resting != 0 {
			t.Errorf("process %d: %d indices are open and %d rest, of handles without messages", i, live, resting)
		}
	}
}
