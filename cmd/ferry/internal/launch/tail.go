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
	mu          sync.Mutex
	lastLines   []string
	panicLines  []string
	partialLine []byte
}

// add adds output of the rank.
func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(b) > 0 {
		line, rest, isComplete := bytes.Cut(b, []byte{'\n'})
		t.partialLine = append(t.partialLine, line[:min(len(line), maxLine-len(t.partialLine))]...)
		if b = rest; isComplete {
			t.end()
		}
	}
}

// end adds the line, unless it is empty.
func (t *tail) end() {
	line := strings.ToValidUTF8(strings.TrimRight(strings.ReplaceAll(string(t.partialLine), "\t", "    "), " \r"), "?")
	t.partialLine = t.partialLine[:0]
	switch {
	case line == "":
	case isPanic(line):
		t.panicLines = []string{line}
	case t.panicLines != nil:
		if len(t.panicLines) < maxPanic {
			t.panicLines = append(t.panicLines, line)
		}
	default:
		if t.lastLines = append(t.lastLines, line); len(t.lastLines) > maxLast {
			t.lastLines = t.lastLines[1:]
		}
	}
}

// lines returns the lines. An incomplete one counts.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	if t.panicLines != nil {
		return t.panicLines
	}
	return t.lastLines
}

// isPanic reports whether a line begins the Go runtime's message about a crash.
func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG") && strings.Contains(line, ": ")
}
