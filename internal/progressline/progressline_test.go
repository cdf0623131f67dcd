package progressline

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is a buffer that may be read while somebody writes.
type seen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// wait waits until there is that text.
func (s *seen) wait(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q does not come: %q", text, s.String())
		}
	}
}

func TestShortWorkSaysNothing(t *testing.T) {
	var out seen
	l := Start(&out, "ferry matrix", "looking")
	l.Say(1, 3, "more")
	fmt.Fprintln(l, "a result")
	l.Close()
	l.Close()
	if got := out.String(); got != "a result\n" && time.Since(l.begun) < first {
		t.Errorf("it says %q", got)
	}
}

func TestLongWorkSpeaksFromItsFirstSecond(t *testing.T) {
	var out seen
	l := Start(&out, "ferry matrix", "looking")
	defer l.Close()
	l.Say(2, 8, "ob1+shm")
	out.wait(t, "ferry matrix: 2 of 8 done, ")
	out.wait(t, " left: ob1+shm\n")
}

func TestWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		done, total int
		took        time.Duration
		want        string
	}{
		{0, 0, 3 * time.Second, "x: 3 s since the start: y"},
		{0, 9, 3 * time.Second, "x: 0 of 9 done, 3 s since the start: y"},
		{3, 9, 3 * time.Second, "x: 3 of 9 done, 3 s since the start, about 6 s left: y"},
		{9, 9, 200 * time.Second, "x: 9 of 9 done, 3 min 20 s since the start: y"},
	} {
		l := &Line{name: "x", what: "y", done: c.done, total: c.total}
		if got := l.text(c.took); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestTerminalKeepsResultsAndNotTheLine draws on a pseudo-terminal.
func TestTerminalKeepsResultsAndNotTheLine(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needs.Missing(t, "no pseudo-terminal: %v", err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 40})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out seen
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(&out, master) // ends with EIO when the other end is closed
	}()
	l := Start(slave, "ferry matrix", strings.Repeat("long ", 20))
	out.wait(t, "\r\x1b[Kferry matrix: ")
	fmt.Fprintln(l, "a result")
	out.wait(t, "\r\x1b[Ka result\r\n\r\x1b[Kferry matrix: ")
	l.Close()
	slave.Close()
	<-copied
	if text := out.String(); !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("the line stays: %q", text)
	}
	for _, line := range strings.Split(strings.ReplaceAll(out.String(), "\n", ""), "\r") {
		if len(strings.TrimPrefix(line, "\x1b[K")) >= 40 {
			t.Errorf("longer than the terminal is wide: %q", line)
		}
	}
}
