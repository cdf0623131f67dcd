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
	n     int
	cmd   *exec.Cmd
	pumps []*pump

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
// That must happen before it is reaped, as long as the group's id is ours.
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
	// The state says how it ended, whatever the error.
	_ = r.cmd.Wait()
	return r.cmd.ProcessState
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

// streams connects the rank's output: an *os.File is inherited, unless lines are
// tagged; anything else goes through a pump.
func (r *rank) streams(j *Job, stdout, stderr *lines) error {
	connect := func(w io.Writer, out *lines) (*os.File, error) {
		if f, ok := w.(*os.File); ok && !j.Tag {
			return f, nil
		}
		if w == nil {
			return nil, nil
		}
		prefix := ""
		if j.Tag {
			prefix = fmt.Sprintf("[%d] ", r.n)
		}
		p, err := newPump(prefix, out)
		if err != nil {
			return nil, err
		}
		r.pumps = append(r.pumps, p)
		return p.w, nil
	}
	out, err := connect(j.Stdout, stdout)
	if err == nil && out != nil {
		r.cmd.Stdout = out
	}
	if err != nil {
		return err
	}
	errOut, err := connect(j.Stderr, stderr)
	if err == nil && errOut != nil {
		r.cmd.Stderr = errOut
	}
	return err
}
