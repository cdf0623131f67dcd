package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rank is one process of the job.
type rank struct {
	n       int
	cmd     *exec.Cmd
	streams []*stream
	tail    *tail    // of standard error
	screen  *screen  // that is its standard error; nil: none
	file    *os.File // of the rank's own for its output; nil: none
	over    bool     // the supervisor knows that the process has ended

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
	if r.screen != nil {
		r.screen.drain()
	}
	if r.file != nil {
		r.file.Close()
	}
}

// outputFile makes the file for the output of a rank.
func (s *supervisor) outputFile(n int) (*os.File, error) {
	width := len(strconv.Itoa(s.job.size - 1))
	return os.Create(filepath.Join(s.job.OutputDir, fmt.Sprintf("rank.%0*d", width, n)))
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

// output returns what the rank writes to: a terminal is inherited, unless lines are
// tagged; anything else gets whole lines, of which last, if not nil, keeps the last ones.
func (r *rank) output(tag bool, to *destination, last *tail) io.Writer {
	if to.w == nil || !tag && isDevice(to.w) {
		return to.w
	}
	s := &stream{to: to, tail: last}
	if tag {
		s.prefix = fmt.Sprintf("[%d] ", r.n)
	}
	r.streams = append(r.streams, s)
	return s
}

// isDevice reports whether w is a terminal, or /dev/null.
func isDevice(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// MaxLine is the longest line that passes through the launcher in one piece, in
// bytes. A rank that writes without line ends can't make the launcher grow.
const MaxLine = 64 << 10

// drainGrace is how long output is awaited after all ranks have ended: a descendant
// that left its rank's process group may hold the pipe open.
const drainGrace = time.Second

// A destination takes whole lines from several ranks.
type destination struct {
	mu  *sync.Mutex // stdout and stderr may be one terminal: one lock for both
	w   io.Writer
	err error
	// broken is called once, when writing failed.
	broken func(error)
}

// write writes, unless that has failed before.
func (d *destination) write(b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil && len(b) > 0 {
		if _, d.err = d.w.Write(b); d.err != nil {
			d.broken(d.err)
		}
	}
}

// A stream carries one stream of one rank to its destination, in whole lines. Package
// os/exec writes to it what it reads from the rank's pipe.
type stream struct {
	prefix string // of each line; empty: bytes go on as they are
	to     *destination
	tail   *tail // may be nil

	mu   sync.Mutex // the end of the job may cut a stream off
	line []byte     // that has begun: the prefix, and what the rank gave so far
}

// Write never fails: a rank may go on when its output has nowhere to go.
func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tail != nil {
		s.tail.add(b)
	}
	if s.prefix == "" {
		s.pass(b)
		return len(b), nil
	}
	for rest := b; len(rest) > 0; {
		if len(s.line) == 0 {
			s.line = append(s.line, s.prefix...)
		}
		n := min(len(rest), MaxLine-(len(s.line)-len(s.prefix)))
		end := bytes.IndexByte(rest[:n], '\n')
		if end >= 0 {
			n = end + 1
		}
		s.line, rest = append(s.line, rest[:n]...), rest[n:]
		if end >= 0 || len(s.line)-len(s.prefix) == MaxLine {
			s.flush()
		}
	}
	return len(b), nil
}

// pass hands on all lines that are whole, at once.
func (s *stream) pass(b []byte) {
	whole := bytes.LastIndexByte(b, '\n') + 1
	s.line = append(s.line, b[:whole]...)
	if whole > 0 {
		s.flush()
	}
	if s.line = append(s.line, b[whole:]...); len(s.line) >= MaxLine {
		s.flush()
	}
}

// flush hands on what there is. A tagged line gets an end where the rank gave none: one
// that is cut, or the last one.
func (s *stream) flush() {
	if len(s.line) == 0 {
		return
	}
	if s.prefix != "" && s.line[len(s.line)-1] != '\n' {
		s.line = append(s.line, '\n')
	}
	s.to.write(s.line)
	s.line = s.line[:0]
}

// close hands on a last line without an end.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
}
