package progress

import "testing"

// The progress goroutine may be about to sleep when the engine is closed.
func TestCloseNeverMissesTheProgressGoroutine(t *testing.T) {
	for range 2000 {
		e := New(Options{})
		e.Bell().Ring() // it is on its way to the bell
		e.Close()
	}
}
