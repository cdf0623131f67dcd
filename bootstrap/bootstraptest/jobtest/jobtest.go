// Package jobtest runs the kit of package bootstraptest over the processes of a job, which
// launchers want where the kit wants clients in one process: each process opens its client
// and connects to the test (Serve), which has the process do what the kit does with a client.
//
// It is for tests; what it says over the connection is gob, between copies of one binary.
package jobtest

import (
	"context"
	"crypto/rand"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/framework"
)

// A Start starts a job of want.Size processes, each of which calls Serve with the address.
// wait returns when the job is over, with what is wrong with its end; it may be called in
// any case, and once.
type Start func(ctx context.Context, want bootstraptest.Want, address string) (wait func() error, err error)

const (
	// openTimeout is how long processes have to start and open.
	openTimeout = 30 * time.Second

	// processTimeout is the bootstrap.Env.ProcessTimeout of jobs with a process that is reported dead, and
	// reportTimeout the limit for the report.
	processTimeout = 2 * time.Second
	reportTimeout  = 30 * time.Second
)

// Factory makes jobs of what start starts. mortal says that the launcher lets others live on
// when one is killed.
func Factory(start Start, mortal bool) bootstraptest.Factory {
	return func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		l, err := net.Listen("unix", "@ferry-kit-"+rand.Text())
		if err != nil {
			return nil, err
		}
		defer l.Close()
		wait, err := start(ctx, want, l.Addr().String())
		if err != nil {
			return nil, err
		}
		j := &job{ranks: make([]*rank, want.Size), deaths: make(chan bootstrap.Event, want.Size), wait: wait}
		if err := j.accept(ctx, l.(*net.UnixListener), want); err != nil {
			return nil, errors.Join(err, j.close())
		}
		out := &bootstraptest.Job{Close: j.close}
		if mortal {
			out.Kill = func(rank int) error { return j.ranks[rank].kill() }
			out.ReportDead = j.reportDead
		}
		for _, r := range j.ranks {
			out.Clients = append(out.Clients, r.client())
		}
		return out, nil
	}
}

// job is one that has begun.
type job struct {
	ranks  []*rank              // Nil for a rank that is not there.
	deaths chan bootstrap.Event // Events ProcDied of all processes; further ones are dropped.
	wait   func() error
}

func (j *job) accept(ctx context.Context, l *net.UnixListener, want bootstraptest.Want) error {
	end := time.Now().Add(openTimeout)
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		end = at
	}
	if err := l.SetDeadline(end); err != nil {
		return err
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range want.Size {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("%d of %d processes have arrived: %w", len(conns), want.Size, err)
		}
		conns = append(conns, conn)
		env := opening{Timeout: want.Timeout}
		if want.Reports {
			env.ProcessTimeout = processTimeout
		}
		if err := gob.NewEncoder(conn).Encode(env); err != nil { // so they open at the same time
			return err
		}
	}
	var errs []error
	for len(conns) > 0 {
		conn := conns[0]
		conns = conns[1:]
		r, err := greet(conn, end, j.deaths)
		if err == nil && j.ranks[r.id.Proc.Rank] != nil {
			err = fmt.Errorf("two processes are %v", r.id.Proc)
		}
		if err != nil {
			conn.Close()
			errs = append(errs, err)
			continue
		}
		j.ranks[r.id.Proc.Rank] = r
	}
	return errors.Join(errs...)
}

// close ends the processes that are still there, and waits for the job's end.
func (j *job) close() error {
	var errs []error
	killed := false
	var all sync.WaitGroup
	failed := make([]error, len(j.ranks))
	for i, r := range j.ranks {
		if r == nil {
			continue
		}
		killed = killed || r.killed
		all.Go(func() { failed[i] = r.leave() })
	}
	all.Wait()
	errs = append(errs, failed...)
	if err := j.wait(); err != nil && !killed { // a launcher may say that one was killed
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reportDead stops a process until others have reported it dead because it answers no queries.
func (j *job) reportDead(rank int) (reason string, err error) {
	r := j.ranks[rank]
	if err := syscall.Kill(r.pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	defer syscall.Kill(r.pid, syscall.SIGCONT)
	for end := time.After(reportTimeout); ; {
		select {
		case e := <-j.deaths:
			if e.Proc == r.id.Proc {
				return e.Reason, nil
			}
		case <-end:
			return "", fmt.Errorf("rank %d was not reported dead within %v of SIGSTOP", rank, reportTimeout)
		}
	}
}

// opening has the fields of bootstrap.Env for a process.
type opening struct{ Timeout, ProcessTimeout time.Duration }

// hello is what a process says when it has opened its client.
type hello struct {
	Identity  bootstrap.Identity
	Pid       int
	Abilities []string
	Err       string
}

// rank is the test's end of one process.
type rank struct {
	id        bootstrap.Identity
	pid       int
	abilities []string
	conn      net.Conn
	killed    bool
	deaths    chan<- bootstrap.Event // As job has it.

	out sync.Mutex
	enc *gob.Encoder

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan reply // nil: the process is gone
	onEvent func(bootstrap.Event)
	ended   chan struct{}
}

func greet(conn net.Conn, end time.Time, deaths chan<- bootstrap.Event) (*rank, error) {
	var h hello
	dec := gob.NewDecoder(conn)
	if err := conn.SetReadDeadline(end); err != nil {
		return nil, err
	}
	if err := dec.Decode(&h); err != nil {
		return nil, fmt.Errorf("a process has not opened: %w", err)
	}
	if h.Err != "" {
		return nil, errors.New(h.Err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	r := &rank{
		id: h.Identity, pid: h.Pid, abilities: h.Abilities, conn: conn, enc: gob.NewEncoder(conn), deaths: deaths,
		waiting: map[uint64]chan reply{}, ended: make(chan struct{}),
	}
	go r.read(dec)
	return r, nil
}

// read hands on what the process says, until that ends.
func (r *rank) read(dec *gob.Decoder) {
	defer close(r.ended)
	for {
		var got reply
		err := dec.Decode(&got)
		r.mu.Lock()
		if err != nil {
			for _, ch := range r.waiting {
				ch <- reply{Err: &failure{Text: fmt.Sprintf("rank %d is gone: %v", r.id.Proc.Rank, err), Is: []int{closedAt}}}
			}
			r.waiting = nil
			r.mu.Unlock()
			return
		}
		if got.Event != nil {
			r.noteDeath(*got.Event)
			if r.onEvent != nil {
				r.onEvent(*got.Event)
			}
		} else if ch := r.waiting[got.ID]; ch != nil {
			delete(r.waiting, got.ID)
			ch <- got
		}
		r.mu.Unlock()
	}
}

// noteDeath records an event ProcDied.
func (r *rank) noteDeath(e bootstrap.Event) {
	if e.Kind != bootstrap.ProcDied {
		return
	}
	select {
	case r.deaths <- e:
	default:
	}
}

// call has the process do something, and waits for what comes of it. When ctx ends so does
// that of the call there.
func (r *rank) call(ctx context.Context, q request) (reply, error) {
	answer := make(chan reply, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.mu.Unlock()
		return reply{}, fmt.Errorf("rank %d is gone: %w", r.id.Proc.Rank, framework.ErrClosed)
	}
	r.last++
	q.ID = r.last
	r.waiting[q.ID] = answer
	r.mu.Unlock()
	q.Ended = ctx.Err() != nil
	if err := r.send(q); err != nil {
		return reply{}, err
	}
	stop := context.AfterFunc(ctx, func() { r.send(request{ID: q.ID, Op: opCancel}) })
	defer stop()
	got := <-answer
	if got.Err == nil {
		return got, nil
	}
	return got, &remoteError{failure: *got.Err, cause: context.Cause(ctx)}
}

func (r *rank) send(q request) error {
	r.out.Lock()
	defer r.out.Unlock()
	return r.enc.Encode(q)
}

// kill ends the process as a crash would.
func (r *rank) kill() error {
	r.killed = true
	err := syscall.Kill(r.pid, syscall.SIGKILL)
	<-r.ended
	return err
}

// leave closes the client, if that is open, and has the process end.
func (r *rank) leave() error {
	defer r.conn.Close()
	if r.killed {
		return nil
	}
	_, err := r.call(context.Background(), request{Op: opClose})
	if errors.Is(err, framework.ErrClosed) {
		err = nil
	}
	if sent := r.send(request{Op: opExit}); sent != nil {
		return errors.Join(err, sent)
	}
	<-r.ended
	return err
}

// Serve makes this process one of a job's. It opens a client with the times of an Env, and makes the calls that the
// test at that address sends, until the test ends it, or ctx ends.
func Serve(ctx context.Context, address string, open func(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error)) error {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var times opening
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	if err := dec.Decode(&times); err != nil {
		return err
	}
	c, err := open(ctx, bootstrap.Env{Timeout: times.Timeout, ProcessTimeout: times.ProcessTimeout})
	h := hello{Pid: os.Getpid()}
	if err != nil {
		h.Err = err.Error()
	} else {
		h.Identity, h.Abilities = c.Identity(), abilitiesOf(c)
	}
	if sent := enc.Encode(h); err != nil || sent != nil {
		return errors.Join(err, sent)
	}
	s := &served{c: c, enc: enc, cancels: map[uint64]context.CancelCauseFunc{}}
	err = s.run(ctx, dec)
	if closed := c.Close(); !errors.Is(closed, framework.ErrClosed) {
		err = errors.Join(err, closed)
	}
	s.calls.Wait()
	return err
}
