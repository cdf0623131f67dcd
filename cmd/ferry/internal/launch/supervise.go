package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/fork"
)

// stage is how far the end of a job has come. Each lasts Grace.
type stage int

const (
	running  stage = iota
	grieving       // a rank failed; the others know, and may finish
	leaving        // the others have got SIGTERM
	killed         // and SIGKILL
)

// supervisor is the state of one running job. Its methods run on the goroutine
// of Run only.
type supervisor struct {
	job   *Job
	srv   *server.Server
	fork  *fork.Thread
	ranks []*rank
	live  int
	ends  chan end // capacity for every rank: nobody waits to say goodbye

	said    <-chan string // by the server
	lost    <-chan int    // ranks without a connection
	waits   <-chan Report // what ranks wait for
	hang    hang          // what they have said of it
	stderr  *destination
	overdue chan *rank // whose LossGrace is over; capacity for every rank

	adopted <-chan os.Signal // SIGCHLD: a child has ended; nil: nobody sweeps
	reap    <-chan time.Time // when to look for orphans among them
	others  []int            // children that are not the job's

	stage       stage
	next        *time.Timer // when the stage is over
	limit       limit       // of the job
	broken      chan error  // output can't be written
	unread      bool        // nobody reads the job's output any more: the user has seen enough
	timedOut    bool
	asked       bool           // the ranks were asked to end, by this process or by the user
	told        int            // which rank has been named as the one that failed; -1: none
	interrupts  int            // SIGINTs and SIGTERMs so far
	interrupted bool           // by whatever signal that ends a program
	killedBy    syscall.Signal // the second signal
	result      Result
}

type end struct {
	rank  *rank
	state *os.ProcessState
}

// supervise starts the ranks and returns when all have ended.
//
// Signals: USR2 asks every rank what it waits for; TSTP stops the ranks
// and this process, and CONT has the ranks go on; others go to every rank's process
// group. The second of INT and TERM kills the job: there may be ranks that ignore both.
func supervise(ctx context.Context, j *Job, srv *server.Server, said <-chan string, lost <-chan int, waits <-chan Report) (Result, error) {
	s := &supervisor{
		job: j, srv: srv, fork: newForker(), ends: make(chan end, j.size), said: said, lost: lost, waits: waits, overdue: make(chan *rank, j.size),
		next: time.NewTimer(Grace), broken: make(chan error, 2), told: -1,
	}
	s.next.Stop()
	defer s.next.Stop()
	defer s.fork.Close()

	if j.Sweep {
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGCHLD)
		defer signal.Stop(ended)
		s.adopt(ended)
	}
	startErr := s.startAll(ctx)
	if startErr != nil {
		s.kill()
	} else if j.Timeout > 0 {
		s.limit.begin(j.Timeout)
		defer s.limit.pause()
	}
	done := ctx.Done()
	for s.live > 0 {
		select {
		case e := <-s.ends:
			s.ended(e)
		case sig := <-j.Signals:
			s.signal(sig)
		case <-s.adopted:
			if s.reap == nil {
				s.reap = time.After(reapDelay)
			}
		case <-s.reap:
			s.reap = nil
			reap(s.notOrphans())
		case <-s.limit.up():
			s.timeout()
		case <-s.next.C:
			s.advance()
		case line := <-s.said:
			j.Note(line)
		case n := <-s.lost:
			s.cutOff(s.ranks[n])
		case r := <-s.waits:
			s.hears(r)
		case <-s.hang.over:
			s.explain()
		case r := <-s.overdue:
			s.outlived(r)
		case err := <-s.broken:
			if s.unread = s.unread || errors.Is(err, syscall.EPIPE); !s.unread {
				j.Note(fmt.Sprintf("output can't be written (%v): ending the job", err))
			}
			s.leave()
		case <-done:
			done = nil
			s.leave()
		}
	}
	s.sweep()
	var drained sync.WaitGroup
	for _, r := range s.ranks {
		drained.Go(r.drain)
	}
	drained.Wait()
	if !s.unread {
		s.account()
	}
	switch {
	case startErr != nil:
		return s.result, startErr
	case ctx.Err() != nil:
		return s.result, fmt.Errorf("job given up: %w", context.Cause(ctx))
	case s.timedOut:
		s.result.Status = StatusTimeout
	case s.killedBy != 0:
		s.result.Status = 128 + int(s.killedBy)
	case s.unread:
		s.result.Status = 128 + int(syscall.SIGPIPE)
	case len(s.result.Failures) > 0:
		s.result.Status = s.result.Failures[0].Status
	}
	return s.result, nil
}

// adopt prepares for what ranks leave behind. Without it the job runs all the same.
func (s *supervisor) adopt(ended <-chan os.Signal) {
	others, err := adopt()
	if err != nil {
		s.job.Note(err.Error())
	}
	s.others, s.adopted = others, ended
}

// notOrphans returns the children for whom somebody else waits.
func (s *supervisor) notOrphans() []int {
	pids := slices.Clone(s.others)
	for _, r := range s.ranks {
		if !r.over {
			pids = append(pids, r.cmd.Process.Pid)
		}
	}
	return pids
}

// sweep ends what the ranks have left behind. All of them have ended.
func (s *supervisor) sweep() {
	if s.adopted == nil {
		return
	}
	if left := sweep(s.others, Grace); len(left) > 0 {
		s.job.Note(fmt.Sprintf("can't kill processes %v, which ranks started", left))
	}
}

// startAll starts the ranks in order. After an error those that run must be ended. A signal
// that ends the job, or the end of ctx, keeps further ranks from being started.
func (s *supervisor) startAll(ctx context.Context) error {
	var early []os.Signal // for all ranks, once they are there
	defer func() {
		for _, sig := range early {
			s.signal(sig)
		}
	}()
	var places []int
	if s.job.Bind {
		var err error
		if places, err = cores(); err != nil {
			return err
		}
		if s.job.size > len(places) {
			s.job.Note(fmt.Sprintf("%d ranks share %d cores: several ranks are bound to the same core", s.job.size, len(places)))
		}
	}
	var mu sync.Mutex
	broken := func(err error) { s.broken <- err }
	stdout := &destination{mu: &mu, w: s.job.Stdout, broken: broken}
	stderr := &destination{mu: &mu, w: s.job.Stderr, broken: broken}
	s.stderr = stderr
	for _, part := range s.job.parts {
		for range part.N {
			select {
			case sig := <-s.job.Signals:
				if number, ok := sig.(syscall.Signal); ok && ends(number) {
					s.signal(number)
					s.killedBy = number // of a job that is not complete
				} else {
					early = append(early, sig)
				}
			default:
			}
			if s.interrupted || ctx.Err() != nil {
				return nil
			}
			n := len(s.ranks)
			var mine []int
			if s.job.Bind {
				mine = places[n%len(places):][:1]
			}
			if err := s.startOne(n, part, mine, stdout, stderr); err != nil {
				return fmt.Errorf("start rank %d: %w", n, err)
			}
		}
	}
	return nil
}

// startOne starts a rank of a part, which may run on the given processors; none: on all.
func (s *supervisor) startOne(n int, part Part, places []int, stdout, stderr *destination) error {
	r := &rank{n: n, running: true, cmd: exec.Command(part.Program, part.Args...)}
	r.cmd.Dir, r.cmd.ExtraFiles = part.Dir, s.job.Files
	// The last of equal names wins: a job inside a job gets its own identity.
	r.cmd.Env = slices.Concat(processors(places), inherited(), part.Env, s.srv.Environ(n))
	if s.job.OutputDir != "" {
		file, err := s.outputFile(n)
		if err != nil {
			return err
		}
		r.file = file
		stdout = &destination{mu: new(sync.Mutex), w: file, broken: stdout.broken}
		stderr = stdout
	}
	r.tail = &tail{}
	r.cmd.Stdout, r.cmd.Stderr = r.output(s.job.Tag, stdout, nil), r.output(s.job.Tag, stderr, r.tail)
	if f, ok := r.cmd.Stderr.(*os.File); ok && isTerminal(f) {
		// Without one of its own the rank gets the terminal itself.
		if own, err := newScreen(f); err == nil {
			r.screen, r.cmd.Stderr = own, own.near
		}
	}
	r.cmd.WaitDelay = drainGrace
	var relay *os.File
	if n == 0 && s.job.Stdin != nil {
		r.cmd.Stdin = s.job.Stdin
		if isTerminal(s.job.Stdin) {
			// A process outside the terminal's foreground group is stopped when it
			// reads the terminal: the launcher reads for it.
			in, out, err := os.Pipe()
			if err != nil {
				return fmt.Errorf("input pipe: %w", err)
			}
			defer in.Close()
			r.cmd.Stdin, relay = in, out
		}
	}
	asked := cpu.Monotonic()
	if err := startOn(s.fork, r.cmd, places); err != nil {
		if relay != nil {
			relay.Close()
		}
		if r.file != nil {
			r.file.Close()
		}
		if r.screen != nil {
			r.screen.close()
		}
		if errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) {
			// It has the mode of a program, but is none for this machine, or its
			// interpreter ("#!") is missing.
			err = fmt.Errorf("%w: %w", ErrNotExecutable, err)
		}
		return err
	}
	started := cpu.Monotonic()
	if r.screen != nil {
		r.screen.copyTo(stderr, r.tail)
	}
	if relay != nil {
		// It ends with the terminal's input or with the rank; a read of the
		// terminal that is under way when the job ends can't be taken back.
		go func() {
			defer relay.Close()
			_, _ = io.Copy(relay, s.job.Stdin)
		}()
	}
	s.ranks = append(s.ranks, r)
	s.result.Trace.Ranks = append(s.result.Trace.Ranks, RankTrace{Rank: n, Fork: asked, Started: started})
	s.live++
	go func() { s.ends <- end{r, r.wait()} }()
	return nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// ended takes note of a rank's end.
func (s *supervisor) ended(e end) {
	s.live--
	e.rank.over = true
	s.result.Trace.Ranks[e.rank.n].Ended = cpu.Monotonic() // ranks start in order
	f, failed := e.rank.failure(e.state)
	if !failed {
		s.srv.ProcExited(e.rank.n, "")
		return
	}
	s.srv.ProcExited(e.rank.n, e.state.String())
	s.blame(f)
}

// cutOff takes note of a rank that runs without a connection. The others have been told
// that it has failed.
func (s *supervisor) cutOff(r *rank) {
	if r.over || s.stage != running {
		return
	}
	s.job.Note(fmt.Sprintf("rank %d (pid %d) has lost its connection to the launcher: it counts as failed", r.n, r.cmd.Process.Pid))
	if !s.job.Continue {
		time.AfterFunc(cmp.Or(s.job.LossGrace, bootstrap.DefaultTimeout), func() { s.overdue <- r })
	}
}

// outlived ends the job if a rank goes on without a connection.
func (s *supervisor) outlived(r *rank) {
	if !r.over && s.stage == running {
		s.job.Note(fmt.Sprintf("rank %d (pid %d) goes on without a connection: ending the job", r.n, r.cmd.Process.Pid))
		s.told = r.n
		s.enter(grieving)
	}
}

func (s *supervisor) signal(sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	switch number {
	case syscall.SIGUSR2:
		s.askAll()
		return
	case syscall.SIGTSTP:
		s.suspend()
		return
	case syscall.SIGCONT:
		s.all(syscall.SIGCONT)
		s.limit.resume()
		return
	case syscall.SIGINT, syscall.SIGTERM:
		if s.interrupts++; s.interrupts > 1 {
			s.killedBy = number
			s.kill()
			return
		}
	}
	if !ends(number) {
		s.all(number)
		return
	}
	s.interrupted = true
	s.ask(number)
}

// ends reports whether a signal that is forwarded ends a job. USR1 is a program's own affair.
func ends(sig syscall.Signal) bool {
	return !slices.Contains([]syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT}, sig)
}

// timeout begins the end of a job whose time is up: first it says what it is
// doing, then it ends.
func (s *supervisor) timeout() {
	if s.stage >= leaving {
		return
	}
	s.timedOut = true
	s.job.Note(fmt.Sprintf("time is up after %v: ending the job", s.job.Timeout))
	s.askAll()
}

// advance goes on to the next stage when one is over.
func (s *supervisor) advance() {
	switch s.stage {
	case grieving:
		s.named()
		s.leave()
	case leaving:
		s.kill()
	}
}

func (s *supervisor) enter(st stage) {
	s.stage = st
	s.next.Reset(Grace)
}

func (s *supervisor) leave() {
	if s.stage < leaving {
		s.enter(leaving)
		s.ask(syscall.SIGTERM)
	}
}

func (s *supervisor) kill() {
	s.stage = killed
	s.ask(syscall.SIGKILL)
}

// ask sends the ranks a signal that ends programs.
func (s *supervisor) ask(sig syscall.Signal) {
	s.asked = true
	s.all(sig)
}

func (s *supervisor) all(sig syscall.Signal) {
	for _, r := range s.ranks {
		r.signal(sig)
	}
}
