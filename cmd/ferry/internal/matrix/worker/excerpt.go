package worker

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// excerptHalf is the number of bytes kept of each end of an output. The cause of a crash is in its first lines, that
// of a hang in the last.
const excerptHalf = 8 << 10

// An excerpt keeps both ends of an output. The first end starts at the cause of a crash, once one is written.
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
	if excess := len(x.tail) - excerptHalf; excess > 0 {
		x.tail = append(x.tail[:0], x.tail[excess:]...)
		x.droppedBytes += excess
	}
	return len(line), nil
}

// String returns the kept output.
func (x *excerpt) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.droppedBytes == 0 {
		return string(x.head) + string(x.tail)
	}
	return fmt.Sprintf("%s\n[... %d bytes ...]\n%s", x.head, x.droppedBytes, x.tail)
}

// Patterns of crash causes. They are compiled on first use, because benchmarks measure the start of this program.
var (
	fatalLine = compileLazily(`^(panic: |fatal error: |SIG[A-Z]+: )|terminated with signal \d+`)
	// The C library reports the problem before the abort.
	abortLine = compileLazily(`Assertion|corrupt|smashing|double free`)
	// Go reports the signal after the panic.
	signalLine = compileLazily(`^\[signal ([A-Z]+: [a-z ]+)`)
)

func compileLazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// findCause returns the cause of a crash in a process's output, as reported by Go's runtime, the C library or a
// library with signal handlers. Otherwise it returns ferry's error or the last line.
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
		// The first error among ranks is the cause.
		if line != "" && !strings.HasPrefix(last, "ferry ") {
			last = line
		}
	}
	if cause != "" {
		return cause
	}
	return before + last
}
