package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A rank is one process of the job. Its outlets own its output (output.go).
type rank struct {
	rankNumber int
	cmd        *exec.Cmd
	// Nil unless the rank gets a terminal's input.
	terminalInput *terminalReader
	outlets       []*outlet
	// childEnds are the files that only the process needs, until it has started.
	childEnds []*os.File
	// The rank's file in OutputDir; nil if there is none.
	ownSink *sink
	// Of its standard error, or of all output where both streams share a pipe.
	tail tail
	// The supervisor has received the end of the process.
	hasEnded bool
	// It was reported dead because it answered no queries.
	isSilent bool
	// In Trace.Ranks.
	traceIndex int
	// Empty for all.
	boundProcessors []int
	drainOnce       sync.Once

	mu sync.Mutex
	// isRunning is false once the process may be reaped, and its process id and group id
	// reused.
	isRunning bool
}

// signal sends sig to the rank and its process group, as a terminal does.
func (r *rank) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isRunning {
		// It fails only for a group with a zombie as its last process.
		_ = syscall.Kill(-r.cmd.Process.Pid, sig)
	}
}

// wait blocks until the process has ended, kills the rest of its group, and reaps the
// process. Only in this order is the group id certainly the rank's. The output may still be on
// its way.
func (r *rank) wait() *os.ProcessState {
	pid := r.cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	r.signal(syscall.SIGKILL)
	r.mu.Lock()
	r.isRunning = false
	r.mu.Unlock()
	state, _ := r.cmd.Process.Wait() // Fails only for a process that does not exist.
	return state
}

// closeChildEnds closes childEnds. The process has started, or failed to.
func (r *rank) closeChildEnds() {
	for _, f := range r.childEnds {
		f.Close()
	}
	r.childEnds = nil
}

// startCopies begins to copy input and output. The rank has started.
func (r *rank) startCopies() {
	if r.terminalInput != nil {
		go r.terminalInput.run()
	}
	for _, o := range r.outlets {
		go o.copy()
	}
}

// drain blocks until all output is written, for as long as its reader pauses. The job has no
// process left, except for descendants that the launcher could not kill.
func (r *rank) drain() { r.drainOnce.Do(r.drainOutput) }

func (r *rank) drainOutput() {
	if r.terminalInput != nil {
		r.terminalInput.close()
	}
	for _, o := range r.outlets {
		o.drain()
	}
	for _, o := range r.outlets {
		<-o.copyDone
	}
	if r.ownSink != nil {
		r.ownSink.finish()
	}
}

// abort releases the resources of a rank that could not be started.
func (r *rank) abort() {
	for _, o := range r.outlets {
		o.close()
	}
	if r.ownSink != nil {
		r.ownSink.finish()
	}
	if r.terminalInput != nil {
		r.terminalInput.abort()
	}
}

// failure describes an end that is not exit status 0; ok is false for one that is.
func (r *rank) failure(st *os.ProcessState) (f Failure, ok bool) {
	f = Failure{Rank: r.rankNumber, PID: r.cmd.Process.Pid}
	ws, isWait := st.Sys().(syscall.WaitStatus)
	switch {
	case st.Success():
		return f, false
	case isWait && ws.Signaled():
		f.Status = 128 + int(ws.Signal())
		f.HowEnded = fmt.Sprintf("killed by signal %d (%s)", int(ws.Signal()), ws.Signal())
	default:
		f.Status = st.ExitCode()
		f.HowEnded = fmt.Sprintf("exited with status %d", f.Status)
	}
	return f, true
}
