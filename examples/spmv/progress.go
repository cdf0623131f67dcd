package main

import (
	"fmt"
	"os"
	"time"
)

// newProgress returns a function that shows the progress on a terminal, until all
// work is done.
func newProgress(on bool, total int) func(done int) {
	st, err := os.Stderr.Stat()
	if !on || err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return func(int) {}
	}
	const often = 100 * time.Millisecond
	var last time.Time
	return func(done int) {
		if done == total {
			fmt.Fprint(os.Stderr, "\r\033[K")
		} else if time.Since(last) >= often {
			last = time.Now()
			fmt.Fprintf(os.Stderr, "\rspmv: %d of %d", done, total)
		}
	}
}
