// Package jobtest runs the kit of package bootstraptest with the processes of a launcher's job. The
// kit needs clients in one process. So each process opens its client and connects to the test
// (Serve), which sends it the kit's calls.
//
// The connection carries gob between copies of one binary.
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

// A Start starts a job of want.Size processes, each of which calls Serve with the address. wait
// returns at the end of the job, with an error if that was a failure. It is called at most once.
type Start func(ctx context.Context, want bootstraptest.Want, address string) (wait func() error, err error)

const (
	// openTimeout limits the time in which processes start and open their clients.
	openTimeout = 30 * time.Second

	// processTimeout is the bootstrap.Env.ProcessTimeout of jobs with a process that is reported dead, and
	// reportTimeout the limit for the report.
	processTimeout = 2 * time.Second
	reportTimeout  = 30 * time.Second
)

// Factory returns a factory of jobs that start starts. mortal means that the launcher lets other
// processes continue when one is killed.
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

// job is a running job.
type job struct {
	// nil for a rank that has not connected.
	ranks []*rank
	// Events PeerFailed of all processes. Further ones are dropped.
	deaths chan bootstrap.Event
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
		env := envTimes{Timeout: want.Timeout}
		if want.Reports {
			env.ProcessTimeout = processTimeout
		}
		if err := gob.NewEncoder(conn).Encode(env); err != nil { // Then all processes open at the same time.
			return err
		}
	}
	var errs []error
	for len(conns) > 0 {
		conn := conns[0]
		conns = conns[1:]
		r, err := acceptRank(conn, end, j.deaths)
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

// close ends the remaining processes, and waits for the end of the job.
func (j *job) close() error {
	var errs []error
	killed := false
	var all sync.WaitGroup
	failed := make([]error, len(j.ranks))
	for i, r := range j.ranks {
		if r == nil {
			continue
		}
		killed = killed || r.isKilled
		all.Go(func() { failed[i] = r.shutdown() })
	}
	all.Wait()
	errs = append(errs, failed...)
	if err := j.wait(); err != nil && !killed { // A launcher may report the kill.
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

// envTimes has the fields of bootstrap.Env for a process.
type envTimes struct{ Timeout, ProcessTimeout time.Duration }

// hello is the first message of a process, after it has opened its client.
type hello struct {
	Identity bootstrap.Identity
	Pid      int
	Features []string
	Err      string
}

// rank is the test's connection with one process.
type rank struct {
	id       bootstrap.Identity
	pid      int
	features []string
	conn     net.Conn
	isKilled bool
	// That of job.
	deaths chan<- bootstrap.Event

	writeMu sync.Mutex
	enc     *gob.Encoder

	mu     sync.Mutex
	lastID uint64
	// nil once the connection has ended.
	pendingCalls map[uint64]chan reply
	onEvent      func(bootstrap.Event)
	done         chan struct{}
}

func acceptRank(conn net.Conn, end time.Time, deaths chan<- bootstrap.Event) (*rank, error) {
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
		id: h.Identity, pid: h.Pid, features: h.Features, conn: conn, enc: gob.NewEncoder(conn), deaths: deaths,
		pendingCalls: map[uint64]chan reply{}, done: make(chan struct{}),
	}
	go r.read(dec)
	return r, nil
}

// read delivers replies and events until the connection ends.
func (r *rank) read(dec *gob.Decoder) {
	defer close(r.done)
	for {
		var got reply
		err := dec.Decode(&got)
		r.mu.Lock()
		if err != nil {
			for _, ch := range r.pendingCalls {
				ch <- reply{Err: &failure{Text: fmt.Sprintf("rank %d is gone: %v", r.id.Proc.Rank, err), SentinelIndexes: []int{closedIndex}}}
			}
			r.pendingCalls = nil
			r.mu.Unlock()
			return
		}
		if got.Event != nil {
			r.recordDeath(*got.Event)
			if r.onEvent != nil {
				r.onEvent(*got.Event)
			}
		} else if ch := r.pendingCalls[got.ID]; ch != nil {
			delete(r.pendingCalls, got.ID)
			ch <- got
		}
		r.mu.Unlock()
	}
}

// recordDeath records an event PeerFailed.
func (r *rank) recordDeath(e bootstrap.Event) {
	if e.Kind != bootstrap.PeerFailed {
		return
	}
	select {
	case r.deaths <- e:
	default:
	}
}

// call sends a request and waits for its reply. The end of ctx ends the context of the call in the
// process.
func (r *rank) call(ctx context.Context, q request) (reply, error) {
	answer := make(chan reply, 1)
	r.mu.Lock()
	if r.pendingCalls == nil {
		r.mu.Unlock()
		return reply{}, fmt.Errorf("rank %d is gone: %w", r.id.Proc.Rank, framework.ErrClosed)
	}
	r.lastID++
	q.ID = r.lastID
	r.pendingCalls[q.ID] = answer
	r.mu.Unlock()
	q.IsContextEnded = ctx.Err() != nil
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
	r.writeMu.Lock()
	defer r.writeMu.Unlock()
	return r.enc.Encode(q)
}

// kill ends the process as a crash would.
func (r *rank) kill() error {
	r.isKilled = true
	err := syscall.Kill(r.pid, syscall.SIGKILL)
	<-r.done
	return err
}

// shutdown closes the client if it is open, and ends the process.
func (r *rank) shutdown() error {
	defer r.conn.Close()
	if r.isKilled {
		return nil
	}
	_, err := r.call(context.Background(), request{Op: opClose})
	if errors.Is(err, framework.ErrClosed) {
		err = nil
	}
	if sent := r.send(request{Op: opExit}); sent != nil {
		return errors.Join(err, sent)
	}
	<-r.done
	return err
}

// Serve makes this process one of a job's. It opens a client with the times of an Env, and executes
// the requests of the test at that address until the test ends it, or ctx ends.
func Serve(ctx context.Context, address string, open func(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error)) error {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var times envTimes
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	if err := dec.Decode(&times); err != nil {
		return err
	}
	c, err := open(ctx, bootstrap.Env{Timeout: times.Timeout, ProcessTimeout: times.ProcessTimeout})
	h := hello{Pid: os.Getpid()}
	if err != nil {
		h.Err = err.Error()
	} else {
		h.Identity, h.Features = c.Identity(), featuresOf(c)
	}
	if sent := enc.Encode(h); err != nil || sent != nil {
		return errors.Join(err, sent)
	}
	s := &rankServer{client: c, enc: enc, cancels: map[uint64]context.CancelCauseFunc{}}
	err = s.run(ctx, dec)
	if closed := c.Close(); !errors.Is(closed, framework.ErrClosed) {
		err = errors.Join(err, closed)
	}
	s.calls.Wait()
	return err
}
