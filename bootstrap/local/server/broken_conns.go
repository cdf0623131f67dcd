package server

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// reapGrace is the time between the end of a process and ProcExited. This process, or a wrapper
// that it has started, reaps it.
const reapGrace = time.Second

// flagExiting is the kernel's flag of a process that ends (PF_EXITING).
const flagExiting = 0x4

// reportBroken reports a process dead whose connection broke the given time ago without ProcExited.
// On a busy machine a killed process may wait for a processor between the end of its connections
// and its own end, and so may the process that reaps it. Meanwhile reportBroken waits, because
// ProcExited has a more exact reason.
func (s *Server) reportBroken(p *proc, pid int, ago time.Duration) {
	patience := exitDelay(pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.hasEnded || s.isClosed:
		return
	case ago < patience:
		s.runAfter(exitGrace, func() { s.reportBroken(p, pid, ago+exitGrace) })
		return
	case s.opt.OnLost != nil:
		s.opt.OnLost(Lost{Rank: int(p.rank)})
	}
	s.reportFailedLocked(p, "connection lost")
}

// exitDelay returns the time from the end of a process's connection in which ProcExited may follow.
// It is 0 for a process that runs.
func exitDelay(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return reapGrace
	}
	// The name in brackets is arbitrary. The state and the parent follow, and four fields later the
	// flags.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 7 {
		return 0
	}
	flags, _ := strconv.Atoi(fields[6])
	if ends := flags&flagExiting != 0 || fields[0] == "Z"; !ends {
		return 0
	}
	if fields[1] == strconv.Itoa(os.Getpid()) {
		return math.MaxInt64 // This process waits for its child.
	}
	return reapGrace
}
