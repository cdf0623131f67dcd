package launch

import (
	"bytes"
	"strings"
	"sync"
)

// What is kept of a rank's standard error, to be shown beside its failure.
const (
	mostLast  = 4   // lines; of a panic, from its first one on
	mostPanic = 8   // with the place where it happened
	mostLine  = 160 // bytes of a line
)

// A tail keeps the last lines of a stream, or those with which a Go program says why it
// dies: what follows those may be the stacks of a thousand goroutines.
type tail struct {
	mu    sync.Mutex
	last  []string
	panic []string
	line  []byte // that has begun
}

// add takes what the rank wrote.
func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		t.line = append(t.line, line[:min(len(line), mostLine-len(t.line))]...)
		if b = rest; whole {
			t.end()
		}
	}
}

// end ends a line. An empty one says nothing.
func (t *tail) end() {
	line := strings.ToValidUTF8(strings.TrimRight(strings.ReplaceAll(string(t.line), "\t", "    "), " \r"), "?")
	t.line = t.line[:0]
	switch {
	case line == "":
	case isPanic(line):
		t.panic = []string{line}
	case t.panic != nil:
		if len(t.panic) < mostPanic {
			t.panic = append(t.panic, line)
		}
	default:
		if t.last = append(t.last, line); len(t.last) > mostLast {
			t.last = t.last[1:]
		}
	}
}

// lines returns what was kept. The rank adds nothing any more.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	if t.panic != nil {
		return t.panic
	}
	return t.last
}

// isPanic reports whether the Go runtime begins so to say why a program dies.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG") && strings.Contains(line, ": ")
}
