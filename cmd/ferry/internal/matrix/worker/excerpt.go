package worker

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// excerptPart is how much of an output is kept of its beginning, and of its end. Of
// a crash the first lines tell most, of a hang the last.
const excerptHalf = 8 << 10

// excerpt keeps the beginning and the end of what processes write. The line that
// says what one dies of is a new beginning.
type excerpt struct {
	mu           sync.Mutex
	head         []byte
	tail         []byte
	droppedBytes int
	hasCause     bool
}

// Write implements io.Writer, for whole lines.
func (x *excerpt) Write(line []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.hasCause && fatalLine().Match(line) {
		x.hasCause = true
		all := append(x.head, x.tail...)
		x.head = bytes.Clone(all[max(0, len(all)-excerptHalf/4):])
		x.droppedBytes += len(all) - len(x.head)
		x.tail = nil
	}
	room := min(max(0, excerptHalf-len(x.head)), len(line))
	x.head = append(x.head, line[:room]...)
	x.tail = append(x.tail, line[room:]...)
	if over := len(x.tail) - excerptHalf; over > 0 {
		x.tail = append(x.tail[:0], x.tail[over:]...)
		x.droppedBytes += over
	}
	return len(line), nil
}

// String is what was kept.
func (x *excerpt) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.droppedBytes == 0 {
		return string(x.head) + string(x.tail)
	}
	return fmt.Sprintf("%s\n[... %d bytes ...]\n%s", x.head, x.droppedBytes, x.tail)
}

// Lines that say what a process died of. They are compiled when one has: this
// program is also a rank of benchmarks, whose start is measured.
var (
	fatalLine = compileLazily(`^(panic: |fatal error: |SIG[A-Z]+: )|terminated with signal \d+`)
	// C says what is wrong before it aborts,
	abortLine = compileLazily(`Assertion|corrupt|smashing|double free`)
	// and Go says after a panic which signal it was.
	signalLine = compileLazily(`^\[signal ([A-Z]+: [a-z ]+)`)
)

func compileLazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// lastWords finds in a process's output what it died of: what Go's runtime says, the
// C library, or a library that catches signals itself; or what ferry said, or the
// last line.
func findCause(output string) string {
	var before, cause, last string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		switch m := fatalLine().FindStringSubmatch(line); {
		case cause != "":
			if m := signalLine().FindStringSubmatch(line); m != nil {
				return cause + " (" + strings.TrimSuffix(m[1], " code") + ")"
			}
			if line == "" || strings.HasPrefix(line, "goroutine ") {
				return cause
			}
		case m != nil && m[1] == "":
			return before + m[0]
		case m != nil:
			cause = before + line
		case abortLine().MatchString(line):
			before = line + "; "
		}
		// Of what ranks complain about the first is the cause.
		if line != "" && !strings.HasPrefix(last, "ferry ") {
			last = line
		}
	}
	if cause != "" {
		return cause
	}
	return before + last
}
