package server

import (
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On a busy machine there is time between the end of a process's connection and ProcExited.
// "Connection lost" would hide the reason of the end.
func TestReportBroken_ProcessIsExiting_Waits(t *testing.T) {
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil { // It is not reaped.
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		pid    int
		within time.Duration
		reason string
	}{
		{"a child that has ended", pid, math.MaxInt64, "signal: killed"},
		{"one that runs", os.Getpid(), 0, "connection lost"},
		{"an unknown process", 0, 0, "connection lost"},
	} {
		if got := exitDelay(c.pid); got != c.within {
			t.Errorf("%s: may end within %v, want %v", c.what, got, c.within)
		}
		lost := 0
		s, err := New(Options{Size: 1, OnLost: func(Lost) { lost++ }})
		if err != nil {
			t.Fatal(err)
		}
		s.procs[0].isConnBroken = true
		s.reportBroken(s.procs[0], c.pid, time.Hour)
		s.ProcExited(0, "signal: killed")
		if len(s.failures) != 1 || s.failures[0].Reason != c.reason || (lost == 1) != (c.within == 0) {
			t.Errorf("%s: %+v, %d reported", c.what, s.failures, lost)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if got := exitDelay(pid); got != reapGrace {
		t.Errorf("an ended process: exit delay %v", got)
	}
}
