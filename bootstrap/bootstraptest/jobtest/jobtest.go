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
	"maps"
	"net"
	"os"
	"slices"
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
func Factory(start Start, mortal bool) bootstraptest.Factory { return newFactory(start, mortal, false) }

// GrowingFactory is Factory for launchers that add processes to a running job. These call Serve with
// the same address.
func GrowingFactory(start Start, mortal bool) bootstraptest.Factory {
	return newFactory(start, mortal, true)
}

func newFactory(start Start, mortal, grows bool) bootstraptest.Factory {
	return func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		l, err := net.Listen("unix", "@ferry-kit-"+rand.Text())
		if err != nil {
			return nil, err
		}
		wait, err := start(ctx, want, l.Addr().String())
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		j := &job{ranks: make([]*rank, want.Size), deathEvents: make(chan bootstrap.Event, want.Size), waitLauncher: wait, listener: l.(*net.UnixListener), want: want, addedChanged: make(chan struct{})}
		if err := j.accept(ctx); err != nil {
			return nil, errors.Join(err, j.close())
		}
		out := &bootstraptest.Job{Close: j.close}
		if mortal {
			out.Kill = func(rank int) error { return j.rank(rank).kill() }
			out.ReportDead = j.reportDead
		}
		if grows {
			j.acceptorGroup.Go(j.acceptAdded)
			out.Added = j.addedClient
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
	deathEvents  chan bootstrap.Event
	waitLauncher func() error

	listener *net.UnixListener
	want     bootstraptest.Want
	// The goroutine of acceptAdded.
	acceptorGroup sync.WaitGroup
	// Guards the fields below.
	mu         sync.Mutex
	addedRanks map[int]*rank
	// Error of an added process.
	addedErr error
	// Closed with each added process and replaced.
	addedChanged chan struct{}
}

// env returns the environment of the clients.
func (j *job) env() envTimes {
	env := envTimes{Timeout: j.want.Timeout, MaxRanks: max(j.want.Size, j.want.MaxProcs)}
	if j.want.Reports {
		env.ProcessTimeout = processTimeout
	}
	return env
}

// rank returns a process that has connected.
func (j *job) rank(rank int) *rank {
	if rank < len(j.ranks) {
		return j.ranks[rank]
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.addedRanks[rank]
}

// acceptAdded accepts added processes until the job closes.
func (j *job) acceptAdded() {
	if err := j.listener.SetDeadline(time.Time{}); err != nil {
		return // The listener is closed.
	}
	for {
		conn, err := j.listener.Accept()
		if err != nil {
			return
		}
		var r *rank
		if err = gob.NewEncoder(conn).Encode(j.env()); err == nil {
			r, err = acceptRank(conn, time.Now().Add(openTimeout), j.deathEvents)
		}
		j.mu.Lock()
		if err != nil {
			conn.Close()
			j.addedErr = errors.Join(j.addedErr, err)
		} else {
			if j.addedRanks == nil {
				j.addedRanks = map[int]*rank{}
			}
			j.addedRanks[int(r.id.Proc.Rank)] = r
		}
		close(j.addedChanged)
		j.addedChanged = make(chan struct{})
		j.mu.Unlock()
	}
}

// addedClient waits for an added process.
func (j *job) addedClient(ctx context.Context, rank int) (bootstrap.Client, error) {
	for {
		j.mu.Lock()
		r, err, changed := j.addedRanks[rank], j.addedErr, j.addedChanged
		j.mu.Unlock()
		if r != nil {
			return r.client(), nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("added rank %d: %w", rank, context.Cause(ctx))
		}
	}
}

func (j *job) accept(ctx context.Context) error {
	l, want := j.listener, j.want
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
		if err := gob.NewEncoder(conn).Encode(j.env()); err != nil { // Then all processes open at the same time.
			return err
		}
	}
	var errs []error
	for len(conns) > 0 {
		conn := conns[0]
		conns = conns[1:]
		r, err := acceptRank(conn, end, j.deathEvents)
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
	j.listener.Close()
	j.acceptorGroup.Wait()
	var all sync.WaitGroup
	ranks := slices.AppendSeq(slices.Clone(j.ranks), maps.Values(j.addedRanks))
	failed := make([]error, len(ranks))
	for i, r := range ranks {
		if r == nil {
			continue
		}
		killed = killed || r.isKilled
		all.Go(func() { failed[i] = r.shutdown() })
	}
	all.Wait()
	errs = append(errs, failed...)
	if err := j.waitLauncher(); err != nil && !killed { // A launcher may report the kill.
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reportDead stops a process until others have reported it dead because it answers no queries.
func (j *job) reportDead(rank int) (reason string, err error) {
	r := j.rank(rank)
	if err := syscall.Kill(r.pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	defer syscall.Kill(r.pid, syscall.SIGCONT)
	for end := time.After(reportTimeout); ; {
		select {
		case e := <-j.deathEvents:
			if e.Proc == r.id.Proc {
				return e.Reason, nil
			}
		case <-end:
			return "", fmt.Errorf("rank %d was not reported dead within %v of SIGSTOP", rank, reportTimeout)
		}
	}
}

// envTimes has the fields of bootstrap.Env for a process.
type envTimes struct {
	Timeout, ProcessTimeout time.Duration
	MaxRanks                int
}

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
	deathEvents chan<- bootstrap.Event

	writeMu sync.Mutex
	enc     *gob.Encoder

	mu     sync.Mutex
	lastID uint64
	// nil once the connection has ended.
	pendingCalls map[uint64]chan reply
	onEvent      func(bootstrap.Event)
	connEnded    chan struct{}
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
		id: h.Identity, pid: h.Pid, features: h.Features, conn: conn, enc: gob.NewEncoder(conn), deathEvents: deaths,
		pendingCalls: map[uint64]chan reply{}, connEnded: make(chan struct{}),
	}
	go r.read(dec)
	return r, nil
}

// read delivers replies and events until the connection ends.
func (r *rank) read(dec *gob.Decoder) {
	defer close(r.connEnded)
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
	case r.deathEvents <- e:
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
	return got, &remoteError{failure: *got.Err, ctxCause: context.Cause(ctx)}
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
	<-r.connEnded
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
	<-r.connEnded
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
	c, err := open(ctx, bootstrap.Env{Timeout: times.Timeout, ProcessTimeout: times.ProcessTimeout, MaxRanks: times.MaxRanks})
	h := hello{Pid: os.Getpid()}
	if err != nil {
		h.Err = err.Error()
	} else {
		h.Identity, h.Features = c.Identity(), featuresOf(c)
	}
	if sent := enc.Encode(h); err != nil || sent != nil {
		return errors.Join(err, sent)
	}
	s := &rankServer{client: c, enc: enc, cancelsByID: map[uint64]context.CancelCauseFunc{}}
	err = s.run(ctx, dec)
	if closed := c.Close(); !errors.Is(closed, framework.ErrClosed) {
		err = errors.Join(err, closed)
	}
	s.runningCalls.Wait()
	return err
}
