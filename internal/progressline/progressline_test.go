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

// syncBuffer is a buffer for concurrent reads and writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// waitFor blocks until the buffer contains text.
func (s *syncBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q is missing: %q", text, s.String())
		}
	}
}

func TestLine_ShortWork_PrintsNoLine(t *testing.T) {
	var out syncBuffer
	l := Start(&out, "ferry matrix", "looking")
	l.Update(1, 3, "more")
	fmt.Fprintln(l, "a result")
	l.Close()
	l.Close()
	if got := out.String(); got != "a result\n" && time.Since(l.startedAt) < firstDelay {
		t.Errorf("output %q", got)
	}
}

func TestLine_LongWork_PrintsProgress(t *testing.T) {
	var out syncBuffer
	l := Start(&out, "ferry matrix", "looking")
	defer l.Close()
	l.Update(2, 8, "ob1+shm")
	out.waitFor(t, "ferry matrix: 2 of 8 done, ")
	out.waitFor(t, " left: ob1+shm\n")
}

func TestLine_StepsLeft_EstimatesRemainingTime(t *testing.T) {
	for _, c := range []struct {
		done, total int
		elapsed     time.Duration
		want        string
	}{
		{0, 0, 3 * time.Second, "x: 3 s since the start: y"},
		{0, 9, 3 * time.Second, "x: 0 of 9 done, 3 s since the start: y"},
		{3, 9, 3 * time.Second, "x: 3 of 9 done, 3 s since the start, about 6 s left: y"},
		{9, 9, 200 * time.Second, "x: 9 of 9 done, 3 min 20 s since the start: y"},
	} {
		l := &Line{name: "x", step: "y", done: c.done, total: c.total}
		if got := l.format(c.elapsed); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestLine_Terminal_KeepsResultsAndErasesItself(t *testing.T) {
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
	var out syncBuffer
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(&out, master) // EIO after the other end is closed
	}()
	l := Start(slave, "ferry matrix", strings.Repeat("long ", 20))
	out.waitFor(t, "\r\x1b[Kferry matrix: ")
	fmt.Fprintln(l, "a result")
	out.waitFor(t, "\r\x1b[Ka result\r\n\r\x1b[Kferry matrix: ")
	l.Close()
	slave.Close()
	<-copied
	if text := out.String(); !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("the line stays: %q", text)
	}
	for _, line := range strings.Split(strings.ReplaceAll(out.String(), "\n", ""), "\r") {
		if len(strings.TrimPrefix(line, "\x1b[K")) >= 40 {
			t.Errorf("line is wider than the terminal: %q", line)
		}
	}
}
