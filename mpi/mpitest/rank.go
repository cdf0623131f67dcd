package mpitest

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/mpi"
)

// rank is one rank of a job.
type rank struct {
	run     *run
	rank    int
	environ []string
	// Of the context of this rank.
	endContext context.CancelCauseFunc
	client     *client
	options    []mpi.SessionOption
	hasDied    atomic.Bool // By Die.

	mu       sync.Mutex
	sessions []*mpi.Session // Of Open.
}

// paramTimeout is the parameter for how long a step of the wire-up may take.
const paramTimeout = "bootstrap.timeout"

// do runs the rank.
func (r *rank) do(ctx context.Context, dir string, f func(context.Context) error) (err error) {
	params := r.run.job.Params
	timeout := bootstrap.DefaultTimeout
	if text, ok := params[paramTimeout]; ok {
		if timeout, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("parameter %s: %w", paramTimeout, err)
		}
	}
	dialed, err := local.Dial(ctx, r.environ, bootstrap.Env{Timeout: timeout})
	if err != nil {
		return err
	}
	r.client = newClient(dialed)
	r.options = []mpi.SessionOption{mpi.WithBootstrap(r.client)}
	if _, set := params["btl.shm.dir"]; !set {
		r.options = append(r.options, mpi.WithParam("btl.shm.dir", dir))
	}
	for name, value := range params {
		r.options = append(r.options, mpi.WithParam(name, value))
	}
	if r.run.job.Options != nil {
		r.options = append(r.options, r.run.job.Options(r.rank)...)
	}
	defer func() {
		if r.hasDied.Load() {
			r.closeSessions()
			return
		}
		if e := r.client.Close(); err == nil {
			err = e
		}
	}()
	defer r.guard(&err)
	return f(context.WithValue(ctx, rankKey{}, r))
}

// guard is deferred. It turns the panic of a rank into its error. It reports an error before the functions deferred
// earlier close anything, so that the other ranks have the cause first.
func (r *rank) guard(err *error) { r.settle(err, recover(), "") }

// settle is guard for a value that was recovered. The error begins with subject.
func (r *rank) settle(err *error, panicked any, subject string) {
	if panicked != nil {
		*err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
	}
	if *err != nil && !r.hasDied.Load() {
		*err = fmt.Errorf("%s%w", subject, *err)
		r.run.failed(r.rank, *err)
	}
}
