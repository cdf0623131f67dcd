// Package progressline prints the progress of long work: completed steps, elapsed time and an
// estimate of the remaining time. A terminal shows one line that is updated in place; other
// writers receive a new line every ten seconds. Work of less than half a second prints no line.
package progressline

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	firstDelay       = 500 * time.Millisecond
	terminalInterval = 500 * time.Millisecond
	plainInterval    = 10 * time.Second
)

// Line is a progress line. Output written to it stays, and the line moves below the output.
// All methods are safe for concurrent use.
type Line struct {
	w    io.Writer
	name string
	// 0 if w is no terminal.
	terminalWidth int
	startedAt     time.Time

	mu          sync.Mutex
	step        string
	done, total int
	isDrawn     bool
	stop        chan struct{}
	stopped     sync.WaitGroup
}

// Start starts the progress line of the named work ("ferry matrix") with its first step. The
// line owns w until Close.
func Start(w io.Writer, name, step string) *Line {
	l := &Line{w: w, name: name, step: step, terminalWidth: terminalWidth(w), startedAt: time.Now(), stop: make(chan struct{})}
	l.stopped.Go(l.run)
	return l
}

// terminalWidth returns the columns of a terminal, or 0 if w is none.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

func (l *Line) run() {
	timer := time.NewTimer(firstDelay)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-timer.C:
		}
		l.mu.Lock()
		l.draw()
		l.mu.Unlock()
		if l.terminalWidth > 0 {
			timer.Reset(terminalInterval)
		} else {
			timer.Reset(plainInterval)
		}
	}
}

// Update sets the current step and the number of completed steps. An unknown total is 0.
func (l *Line) Update(done, total int, step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done, l.total, l.step = done, total, step
	if l.isDrawn {
		l.draw()
	}
}

// Write implements io.Writer for whole lines that stay.
func (l *Line) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasDrawn := l.isDrawn
	l.erase()
	n, err := l.w.Write(text)
	if wasDrawn {
		l.draw()
	}
	return n, err
}

// Close erases the line from a terminal and stops its goroutine. A second Close is a no-op.
func (l *Line) Close() {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.stopped.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
}

// draw writes the line and ignores write errors. The caller holds mu.
func (l *Line) draw() {
	text := l.format(time.Since(l.startedAt))
	if l.terminalWidth == 0 {
		fmt.Fprintln(l.w, text)
		return
	}
	if len(text) >= l.terminalWidth {
		text = text[:l.terminalWidth-1]
	}
	fmt.Fprint(l.w, "\r\x1b[K"+text)
	l.isDrawn = true
}

func (l *Line) erase() {
	if l.isDrawn {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.isDrawn = false
	}
}

func (l *Line) format(elapsed time.Duration) string {
	text := l.name + ": "
	if l.total > 0 {
		text += fmt.Sprintf("%d of %d done, ", l.done, l.total)
	}
	text += fmt.Sprintf("%s since the start", formatSeconds(elapsed))
	if l.done > 0 && l.total > l.done {
		text += fmt.Sprintf(", about %s left", formatSeconds(elapsed*time.Duration(l.total-l.done)/time.Duration(l.done)))
	}
	return text + ": " + l.step
}

// formatSeconds rounds to seconds: "42 s", "3 min 20 s".
func formatSeconds(d time.Duration) string {
	if s := int(d.Round(time.Second) / time.Second); s < 100 {
		return fmt.Sprintf("%d s", s)
	} else {
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
}
