package progress

import "testing"

// The keeper may be about to sleep when it is told to go.
func TestCloseNeverMissesTheKeeper(t *testing.T) {
	for range 2000 {
		e := New(Options{})
		e.Bell().Ring() // it is on its way to the bell
		e.Close()
	}
}
