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

// reapGrace is how long ProcExited may take when the process is gone: whoever has
// waited for it, this process or a wrapper that it has started, has to say so.
const reapGrace = time.Second

// exiting is the kernel's flag of a process that ends (PF_EXITING).
const flagExiting = 0x4

// isAbruptClose reports a process dead whose connection broke so long ago, though nobody has
// said that it ended. On a busy machine one that was killed may wait for a processor
// between the end of its connections and its own, and so may whoever is to reap it: as
// long as that lasts its end is still to be told, and says more.
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

// exitDelay is how long after the end of its connection the end of a process may be
// told; 0 for one that runs.
func exitDelay(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return reapGrace
	}
	// The name in brackets may hold anything. Behind it are the state and the parent, and
	// four fields later the flags.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 7 {
		return 0
	}
	flags, _ := strconv.Atoi(fields[6])
	if ends := flags&flagExiting != 0 || fields[0] == "Z"; !ends {
		return 0
	}
	if fields[1] == strconv.Itoa(os.Getpid()) {
		return math.MaxInt64 // a child of this process, which will be waited for
	}
	return reapGrace
}
