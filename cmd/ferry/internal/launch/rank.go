package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// rank is one process of the job.
type rank struct {
	n       int
	cmd     *exec.Cmd
	streams []*stream

	mu sync.Mutex
	// running is false once the process may be reaped: its id, and that of its
	// group, may then belong to a stranger.
	running bool
}

// signal sends sig to the rank and whatever it has started, as a terminal would.
func (r *rank) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		// The only failure is a group whose last process is a zombie: it has ended.
		_ = syscall.Kill(-r.cmd.Process.Pid, sig)
	}
}

// wait blocks until the process has ended, and kills what it left in its group.
// That must happen before it is reaped, as long as the group's id is ours. Output may
// still be on its way: see drain.
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
	r.running = false
	r.mu.Unlock()
	state, _ := r.cmd.Process.Wait() // fails only for a process that is not there
	return state
}

// drain gives the rank's output drainGrace to end by itself. The process has ended.
func (r *rank) drain() {
	// Of the process it finds that it has been reaped; then it waits for the output. It
	// says no more than that either did not go as usual.
	_ = r.cmd.Wait()
	for _, s := range r.streams {
		s.close()
	}
}

// failure describes an end that is not exit status 0; ok is false for one that is.
func (r *rank) failure(st *os.ProcessState) (f Failure, ok bool) {
	f = Failure{Rank: r.n, PID: r.cmd.Process.Pid}
	ws, isWait := st.Sys().(syscall.WaitStatus)
	switch {
	case st.Success():
		return f, false
	case isWait && ws.Signaled():
		f.Status = 128 + int(ws.Signal())
		f.How = fmt.Sprintf("killed by signal %d (%s)", int(ws.Signal()), ws.Signal())
	default:
		f.Status = st.ExitCode()
		f.How = fmt.Sprintf("exited with status %d", f.Status)
	}
	return f, true
}

// output returns what the rank writes to: an *os.File is inherited, unless lines
// are tagged; anything else gets whole lines.
func (r *rank) output(tag bool, to *destination) io.Writer {
	if _, ok := to.w.(*os.File); to.w == nil || ok && !tag {
		return to.w
	}
	s := &stream{to: to}
	if tag {
		s.prefix = fmt.Sprintf("[%d] ", r.n)
	}
	r.streams = append(r.streams, s)
	return s
}
