package main

import (
	"fmt"
	"os"
	"time"
)

// progress shows how far the work is, on a terminal only.
type progress struct {
	on    bool
	total int
	last  time.Time
}

func newProgress(on bool, total int) *progress {
	st, err := os.Stderr.Stat()
	return &progress{on: on && err == nil && st.Mode()&os.ModeCharDevice != 0, total: total}
}

func (p *progress) step(done int) {
	const often = 100 * time.Millisecond
	if !p.on || done < p.total && time.Since(p.last) < often {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(os.Stderr, "\rspmv: %d of %d", done, p.total)
}

func (p *progress) end() {
	if p.on {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
