// Package mpitest runs the ranks of a job as goroutines of one test. Each has a
// bootstrap client, an engine and transports of its own, as a process would, so that
// what is tested is what runs on a cluster; only the address space is shared.
//
//	func TestSum(t *testing.T) {
//		mpitest.Run(t, 4, func(ctx context.Context, c *mpi.Comm) error {
//			sum := make([]int, 1)
//			if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
//				return err
//			}
//			if sum[0] != 6 {
//				return fmt.Errorf("the sum is %d", sum[0])
//			}
//			return nil
//		})
//	}
//
// A rank that fails ends the others' context, and one that hangs is named, with what
// it waits for. When Run returns nothing of the job is left, or the test has failed.
// Jobs may run at the same time.
package mpitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/mpi"
)

// Program is what each rank does. ctx ends when the time is up, and when another
// rank fails.
type Program func(ctx context.Context, c *mpi.Comm) error

// Job says how ranks run. The zero value, with a Size, is right for most tests.
type Job struct {
	Size int // Number of ranks; with Goroutines, of processes.
	// Goroutines, if not 0, makes the program of Run that of this many goroutine ranks in each rank. They are
	// the ranks of a thread communicator (mpi.NewThreadComm), whose communicator the program gets.
	Goroutines int
	// Params sets parameters in all ranks, as mpi.WithParam does: {"pml": "cm"} runs
	// them over another stack.
	Params map[string]string
	// Options returns further options for the session of a rank, if it is not nil.
	Options func(rank int) []mpi.SessionOption
	// Timeout is when a rank counts as hung; 0: 30 s.
	Timeout time.Duration
	// Psets are process sets that the launcher would have named.
	Psets []server.Pset
}

// Run runs f as n ranks over a communicator of all, and fails the test if one of them
// fails, hangs or leaves something behind.
func Run(t testing.TB, n int, f Program) { t.Helper(); Job{Size: n}.Run(t, f) }

// Run runs the job: see Run.
func (j Job) Run(t testing.TB, f Program) {
	t.Helper()
	j.RunSessions(t, func(ctx context.Context) (err error) {
		s, err := Open(ctx)
		if err != nil {
			return err
		}
		defer closed(&err, s.Close)
		world, err := s.Group(ctx, bootstrap.PsetWorld)
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, world, t.Name())
		if err != nil {
			return err
		}
		defer closed(&err, c.Close)
		defer rankOf(ctx).guard(&err)
		if j.Goroutines != 0 {
			return goroutines(ctx, c, j.Goroutines, f)
		}
		return f(ctx, c)
	})
}

// goroutines runs f in n goroutine ranks of a process of c.
func goroutines(ctx context.Context, c *mpi.Comm, n int, f Program) error {
	tc, err := mpi.NewThreadComm(ctx, c, n)
	if err != nil {
		return err
	}
	r := rankOf(ctx)
	err = tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) (err error) {
		err = errGoexit
		defer func() { r.settle(&err, recover(), fmt.Sprintf("goroutine rank %d: ", c.Rank())) }()
		return f(ctx, c)
	})
	return errors.Join(err, tc.Close())
}

// closed calls a Close, which the program may have called before. Its error counts
// where nothing else has failed.
func closed(err *error, close func() error) {
	if e := close(); *err == nil && !errors.Is(e, mpi.ErrClosed) {
		*err = e
	}
}

// rank is one rank of a job.
type rank struct {
	run     *run
	rank    int
	client  bootstrap.Client
	options []mpi.SessionOption
}

// paramTimeout is the parameter for how long a step of the wire-up may take.
const paramTimeout = "bootstrap.timeout"

type rankKey struct{}

// rankOf returns the rank whose context it is.
func rankOf(ctx context.Context) *rank {
	r, ok := ctx.Value(rankKey{}).(*rank)
	if !ok {
		panic("mpitest: the context is not that of a rank")
	}
	return r
}

// Open opens a session of the rank whose context it is, with the job's options and
// then more: mpi.OpenSession for programs of RunSessions.
func Open(ctx context.Context, more ...mpi.SessionOption) (*mpi.Session, error) {
	options := rankOf(ctx).options
	return mpi.OpenSession(ctx, append(options[:len(options):len(options)], more...)...)
}

// Client returns the rank's connection with its launcher. It is the job's, which
// closes it.
func Client(ctx context.Context) bootstrap.Client { return rankOf(ctx).client }

// The causes with which the context of ranks ends.
var (
	errOther = errors.New("another rank has failed")
	errTime  = errors.New("the time of the job is up")
)

// errGoexit is what a rank gets whose function does not return.
var errGoexit = errors.New("its goroutine has ended: a rank reports what is wrong by returning an error, not by t.Fatal")

const defaultTimeout = 30 * time.Second

// grace is how long ranks may take to return once their context has ended.
const grace = 5 * time.Second

// RunSessions runs f as the ranks of a job, which open sessions as they like (Open),
// and close all that they have opened.
func (j Job) RunSessions(t testing.TB, f func(ctx context.Context) error) {
	t.Helper()
	if j.Timeout == 0 {
		j.Timeout = defaultTimeout
	}
	run := &run{job: j, name: fmt.Sprintf("%s %d", t.Name(), runs.Add(1)), over: make([]bool, j.Size)}
	dir, err := segments()
	if err != nil {
		t.Fatal(err)
	}
	// What a job starts inherits its labels, by which it is found again.
	pprof.Do(t.Context(), pprof.Labels(labelJob, run.name), func(ctx context.Context) { run.do(ctx, dir, f) })
	run.left(dir)
	if err := os.RemoveAll(dir); err != nil {
		run.wrong("%v", err)
	}
	run.mu.Lock() // a rank that hangs may still have something to say
	defer run.mu.Unlock()
	for _, line := range run.log {
		t.Log(line)
	}
	for _, line := range run.errs {
		t.Error(line)
	}
	if len(run.errs) > 0 {
		t.FailNow()
	}
}

// segments makes a directory for the job's shared memory, in memory if possible.
func segments() (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "mpitest-"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "mpitest-")
}

// run is a job in progress.
type run struct {
	job  Job
	name string // of labels, unique in the process

	end context.CancelCauseFunc // of the ranks' context

	mu   sync.Mutex
	over []bool // by rank
	log  []string
	errs []string
}

// failed records the error of a rank, and ends the context of all ranks. The first error is the job's. Later ones
// follow from it, and are in the log. So the context ends after the error is recorded. Otherwise an error
// that the end of the context causes in another rank could be the first.
func (r *run) failed(rank int, err error) {
	r.record(rank, err)
	r.end(fmt.Errorf("%w: rank %d: %w", errOther, rank, err))
}

func (r *run) record(rank int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch line := fmt.Sprintf("rank %d: %v", rank, err); {
	case slices.Contains(r.errs, line) || errors.Is(err, errOther):
	case errors.Is(err, errTime):
		r.errs = append(r.errs, fmt.Sprintf("rank %d did not end within %v: %v", rank, r.job.Timeout, err))
	case len(r.errs) == 0:
		r.errs = append(r.errs, line)
	default:
		r.log = append(r.log, "afterwards "+line)
	}
}

func (r *run) wrong(format string, args ...any) {
	r.mu.Lock()
	r.errs = append(r.errs, fmt.Sprintf(format, args...))
	r.mu.Unlock()
}

// do runs the ranks under a launcher of their own.
func (r *run) do(ctx context.Context, dir string, f func(context.Context) error) {
	s, err := server.New(server.Options{Size: r.job.Size, Psets: r.job.Psets})
	if err != nil {
		r.wrong("%v", err)
		return
	}
	defer s.Close()
	if err := s.Listen(""); err != nil {
		r.wrong("%v", err)
		return
	}

	ctx, r.end = context.WithCancelCause(ctx)
	defer r.end(nil)
	var ranks sync.WaitGroup
	for rank := range r.job.Size {
		ranks.Go(func() {
			pprof.Do(ctx, pprof.Labels(labelRank, fmt.Sprint(rank)), func(ctx context.Context) {
				err := errGoexit
				defer func() {
					if err != nil {
						r.failed(rank, err)
					}
					r.mu.Lock()
					r.over[rank] = true
					r.mu.Unlock()
				}()
				err = r.rank(ctx, s, rank, dir, f)
			})
		})
	}
	done := make(chan struct{})
	go func() { ranks.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(r.job.Timeout):
		r.dump(s) // before they hear of it, and leave where they are
		r.end(errTime)
	}
	select {
	case <-done:
	case <-time.After(min(grace, r.job.Timeout)):
	}
	r.hangs(context.Cause(ctx))
}

// rank runs one rank.
func (r *run) rank(ctx context.Context, s *server.Server, number int, dir string, f func(context.Context) error) (err error) {
	timeout := bootstrap.DefaultTimeout
	if text, ok := r.job.Params[paramTimeout]; ok {
		if timeout, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("parameter %s: %w", paramTimeout, err)
		}
	}
	client, err := local.Dial(ctx, s.Environ(number), bootstrap.Env{Timeout: timeout})
	if err != nil {
		return err
	}
	me := &rank{run: r, rank: number, client: client, options: []mpi.SessionOption{mpi.WithBootstrap(client)}}
	if _, set := r.job.Params["btl.shm.dir"]; !set {
		me.options = append(me.options, mpi.WithParam("btl.shm.dir", dir))
	}
	for name, value := range r.job.Params {
		me.options = append(me.options, mpi.WithParam(name, value))
	}
	// The client's own limit passes first: it names who is missing.
	me.options = append(me.options, mpi.WithParam(paramTimeout, (2*timeout).String()))
	if r.job.Options != nil {
		me.options = append(me.options, r.job.Options(number)...)
	}
	defer func() {
		if e := client.Close(); err == nil {
			err = e
		}
	}()
	defer me.guard(&err)
	return f(context.WithValue(ctx, rankKey{}, me))
}

// guard is deferred: it turns the panic of a rank into its error, and tells the
// others of an error before what is deferred behind it closes anything, so that they
// don't take that for the cause.
func (r *rank) guard(err *error) { r.settle(err, recover(), "") }

// settle is guard for a value that was recovered. The error begins with subject.
func (r *rank) settle(err *error, panicked any, subject string) {
	if panicked != nil {
		*err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if *err != nil {
		*err = fmt.Errorf("%s%w", subject, *err)
		r.run.failed(r.rank, *err)
	}
}

// hangs names the ranks that have not come back.
func (r *run) hangs(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rank, over := range r.over {
		if !over {
			r.errs = append(r.errs, fmt.Sprintf("rank %d hangs: it has not returned %v after its context ended (%v); it is at\n%s",
				rank, min(grace, r.job.Timeout), cause, stacks(r.name, fmt.Sprint(rank))))
		}
	}
}

// dump keeps what the ranks wait for.
func (r *run) dump(s *server.Server) {
	s.Dump() // on standard error, as under a launcher
	r.mu.Lock()
	defer r.mu.Unlock()
	for rank, over := range r.over {
		if !over {
			r.log = append(r.log, fmt.Sprintf("when the time was up rank %d was at\n%s", rank, stacks(r.name, fmt.Sprint(rank))))
		}
	}
}

// left looks for what the job has left.
func (r *run) left(dir string) {
	r.mu.Lock()
	failed := len(r.errs) > 0
	r.mu.Unlock()
	if failed { // a rank that hangs leaves all it has
		return
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		r.wrong("segments are left: %v %v", files, err)
		return
	}
	for wait := time.Millisecond; ; wait *= 2 {
		stacks := stacks(r.name, "")
		if stacks == "" {
			return
		}
		if wait > leakPatience {
			r.wrong("goroutines are left:\n%s", stacks)
			return
		}
		time.Sleep(wait) // some are about to end
	}
}

// leakPatience is the longest pause between two looks for goroutines.
const leakPatience = time.Second
