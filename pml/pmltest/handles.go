package pmltest

import (
	"runtime"
	"testing"
)

// manyHandles is the number of ranks of one process, and bytesPerHandle bounds the memory of a PML for each of them
// until it exchanges messages.
const (
	manyHandles    = 10000
	bytesPerHandle = 4 << 10
)

// Handles creates the handles of two processes with many ranks each. Tables by rank would take 80 KB in each
// handle.
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
		if _, live, quarantined := p.Module.CIDs().Counts(); live+quarantined != 0 {
			t.Errorf("process %d: %d indices are open and %d quarantined, of handles without messages", i, live, quarantined)
		}
	}
}
