package progress

import (
	"runtime"
	"testing"
	"weak"
)

// The progress goroutine may be about to sleep when the engine is closed.
func TestClose_ProgressGoroutineFallsAsleep_Returns(t *testing.T) {
	for range 2000 {
		e := New(Options{})
		e.Bell().Ring() // it is on its way to the bell
		e.Close()
	}
}

type idleSource struct{ _ [64]byte }

func (*idleSource) Poll() int { return 0 }

// A source may have the rings of 10,000 ranks.
func TestRemove_LastSource_IsNotKept(t *testing.T) {
	e := New(Options{})
	defer e.Close()
	first, last := new(idleSource), new(idleSource)
	e.Add(first)
	e.Add(last)
	kept := weak.Make(last)
	e.Remove(last)
	last = nil
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the engine keeps a source that was removed")
	}
	e.Remove(first)
}
