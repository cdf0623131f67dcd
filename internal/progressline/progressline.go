// Package progressline shows that long work lives: one line on standard error that says what is
// done, how long it has taken and what is left. On a terminal the line is kept up to date;
// elsewhere there is a line now and then. Work that takes less than half a second says nothing.
//
// It stands on the standard library and golang.org/x/sys. Tools use it.
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
	first = 500 * time.Millisecond // until the first line
	often = 500 * time.Millisecond // between lines on a terminal
	rare  = 10 * time.Second       // between lines elsewhere
)

// Line is that line. As a Writer it passes on what is to stay, and writes itself again below.
// Its methods may be called concurrently.
type Line struct {
	w     io.Writer
	name  string
	width int // of the terminal; 0: it is none
	begun time.Time

	mu          sync.Mutex
	what        string
	done, total int
	drawn       bool
	stop        chan struct{}
	stopped     sync.WaitGroup
}

// Start begins the line of the work that is called name ("ferry matrix"), which does what first.
// w is where it is written; Close it before anything else is written there.
func Start(w io.Writer, name, what string) *Line {
	l := &Line{w: w, name: name, what: what, width: widthOf(w), begun: time.Now(), stop: make(chan struct{})}
	l.stopped.Go(l.run)
	return l
}

// widthOf is the width of the terminal, or 0.
func widthOf(w io.Writer) int {
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
	wait := time.NewTimer(first)
	defer wait.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-wait.C:
		}
		l.mu.Lock()
		l.draw()
		l.mu.Unlock()
		if l.width > 0 {
			wait.Reset(often)
		} else {
			wait.Reset(rare)
		}
	}
}

// Say says what is under way now, and how many steps of all are done. Where it isn't known how
// many there are, total is 0.
func (l *Line) Say(done, total int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done, l.total, l.what = done, total, what
	if l.drawn {
		l.draw()
	}
}

// Write implements io.Writer for what is to stay: whole lines.
func (l *Line) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.drawn
	l.erase()
	n, err := l.w.Write(text)
	if again {
		l.draw()
	}
	return n, err
}

// Close takes the line away from a terminal. A second Close does nothing.
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

// draw writes the line. What can't be written is lost: it is only for who waits.
func (l *Line) draw() {
	text := l.text(time.Since(l.begun))
	if l.width == 0 {
		fmt.Fprintln(l.w, text)
		return
	}
	if len(text) >= l.width {
		text = text[:l.width-1]
	}
	fmt.Fprint(l.w, "\r\x1b[K"+text)
	l.drawn = true
}

func (l *Line) erase() {
	if l.drawn {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.drawn = false
	}
}

// text is the line after so long.
func (l *Line) text(took time.Duration) string {
	text := l.name + ": "
	if l.total > 0 {
		text += fmt.Sprintf("%d of %d done, ", l.done, l.total)
	}
	text += fmt.Sprintf("%s since the start", short(took))
	if l.done > 0 && l.total > l.done {
		text += fmt.Sprintf(", about %s left", short(took*time.Duration(l.total-l.done)/time.Duration(l.done)))
	}
	return text + ": " + l.what
}

// short is a time in seconds, or minutes and seconds.
func short(d time.Duration) string {
	if s := int(d.Round(time.Second) / time.Second); s < 100 {
		return fmt.Sprintf("%d s", s)
	} else {
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
}
