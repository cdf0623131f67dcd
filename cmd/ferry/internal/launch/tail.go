package launch

import (
	"bytes"
	"strings"
	"sync"
)

// Limits of the last lines that a message about a failure shows.
const (
	maxLast  = 4   // Last lines.
	maxPanic = 8   // First lines of a panic, which include its location.
	maxLine  = 160 // Bytes of a line.
)

// A tail keeps the last lines of a stream, or the first lines of a Go program's panic, which
// the stacks of thousands of goroutines may follow.
type tail struct {
	mu    sync.Mutex
	last  []string
	panic []string
	// An incomplete line.
	line []byte
}

// add adds output of the rank.
func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(b) > 0 {
		line, rest, isComplete := bytes.Cut(b, []byte{'\n'})
		t.line = append(t.line, line[:min(len(line), maxLine-len(t.line))]...)
		if b = rest; isComplete {
			t.end()
		}
	}
}

// end adds the line, unless it is empty.
func (t *tail) end() {
	line := strings.ToValidUTF8(strings.TrimRight(strings.ReplaceAll(string(t.line), "\t", "    "), " \r"), "?")
	t.line = t.line[:0]
	switch {
	case line == "":
	case isPanic(line):
		t.panic = []string{line}
	case t.panic != nil:
		if len(t.panic) < maxPanic {
			t.panic = append(t.panic, line)
		}
	default:
		if t.last = append(t.last, line); len(t.last) > maxLast {
			t.last = t.last[1:]
		}
	}
}

// lines returns the lines. An incomplete one counts.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	if t.panic != nil {
		return t.panic
	}
	return t.last
}

// isPanic reports whether a line begins the Go runtime's message about a crash.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG") && strings.Contains(line, ": ")
}
