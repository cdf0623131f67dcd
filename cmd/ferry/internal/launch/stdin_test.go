package launch

import (
	"bufio"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// startReader returns a running reader of a new pseudo-terminal, and its output.
func startReader(t *testing.T) (r *terminalReader, far *os.File, copied *bufio.Reader, done chan struct{}) {
	t.Helper()
	real, err := os.Open(os.DevNull) // Has no size.
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	far, near, err := newPTY(real)
	if err != nil {
		t.Fatal(err)
	}
	// Terminals that a process inherits are in blocking mode.
	if _, err := ioctl(near, func(fd int) (int, error) { return 0, unix.SetNonblock(fd, false) }); err != nil {
		t.Fatal(err)
	}
	r, input, err := newTerminalReader(near)
	if err != nil {
		t.Fatal(err)
	}
	done = make(chan struct{})
	go func() { defer close(done); r.run() }()
	t.Cleanup(func() { input.Close(); near.Close(); far.Close() })
	return r, far, bufio.NewReader(input), done
}

func TestTerminalReader_PollIsInterrupted_StillEnds(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGWINCH) // Only a signal with a handler interrupts calls.
	defer signal.Stop(caught)
	r, far, copied, done := startReader(t)
	if _, err := far.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := copied.ReadString('\n'); line != "typed\n" {
		t.Fatalf("%q %v", line, err)
	}
	for range 50 { // One of the threads polls the terminal.
		tasks, _ := filepath.Glob("/proc/self/task/[0-9]*")
		for _, task := range tasks {
			if tid, err := strconv.Atoi(filepath.Base(task)); err == nil {
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGWINCH) // It may have ended.
			}
		}
		time.Sleep(time.Millisecond)
	}
	r.close()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the reader is blocked in a read")
		if _, err := far.WriteString("\n"); err != nil {
			t.Error(err)
		}
		<-done
	}
}

func TestTerminalReader_RankDoesNotRead_CloseEndsTheWrite(t *testing.T) {
	r, far, _, done := startReader(t)
	line := append(make([]byte, 0, 1000), "0123456789"...)
	for len(line) < 999 {
		line = append(line, 'x')
	}
	line = append(line, '\n')
	for range 200 { // More than the pipe holds; the terminal discards the rest.
		if err := far.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write(line); err != nil {
			break
		}
	}
	r.close()
	<-done
}
