package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a server on a socket with its clients.
type job struct {
	srv     *server.Server
	dial    func(ctx context.Context, rank int, timeout time.Duration) (bootstrap.Client, error)
	clients []bootstrap.Client
}

// close closes the clients and the server.
func (j *job) close() error {
	for _, c := range j.clients {
		if err := c.Close(); err != nil && !errors.Is(err, framework.ErrClosed) {
			return err
		}
	}
	return j.srv.Close()
}

// newJob starts a server on a Unix socket below base.
func newJob(base string, opt server.Options) (*job, error) {
	srv, err := server.New(opt)
	if err != nil {
		return nil, err
	}
	if err := srv.Listen(base); err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	j := &job{srv: srv}
	j.dial = func(ctx context.Context, rank int, timeout time.Duration) (bootstrap.Client, error) {
		return Dial(ctx, srv.Environ(rank), bootstrap.Env{Timeout: timeout})
	}
	return j, nil
}

// testJob is newJob for a test, which closes the job.
func testJob(t *testing.T, opt server.Options) *job {
	t.Helper()
	j, err := newJob(t.TempDir(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// open opens rank, in a test.
func (j *job) open(t *testing.T, rank int) bootstrap.Client {
	t.Helper()
	c, err := j.dial(t.Context(), rank, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	return c
}

// openAll opens every rank concurrently.
func (j *job) openAll(ctx context.Context, size int, timeout time.Duration) error {
	j.clients = make([]bootstrap.Client, size)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range size {
		wg.Go(func() { j.clients[r], errs[r] = j.dial(ctx, r, timeout) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestKitOverUnixSocket(t *testing.T) {
	base := t.TempDir()
	bootstraptest.Cases(func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		return kitJob(ctx, base, want, nil)
	}).Run(t)
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// net.Pipe has no socket, no buffer and no peer credentials.
func TestKitOverAnyNetConn(t *testing.T) {
	needs.Time(t)
	base := t.TempDir()
	bootstraptest.Cases(func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		return kitJob(ctx, base, want, func(j *job) {
			j.dial = pipeTo(j)
		})
	}).Run(t)
}

// pipeTo connects processes to a job's server by net.Pipe.
func pipeTo(j *job) func(ctx context.Context, rank int, timeout time.Duration) (bootstrap.Client, error) {
	return func(ctx context.Context, rank int, timeout time.Duration) (bootstrap.Client, error) {
		p, err := paramsFrom(j.srv.Environ(rank))
		if err != nil {
			return nil, err
		}
		id, err := p.identity()
		if err != nil {
			return nil, err
		}
		a, b := net.Pipe()
		j.srv.ServeConn(b)
		return connect(ctx, a, id, p.Token, bootstrap.Env{Timeout: timeout})
	}
}

func TestKitSingleton(t *testing.T) {
	bootstraptest.Cases(func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		if want.Size > 1 || len(want.Psets) > 0 {
			return nil, fmt.Errorf("a singleton is alone and has no launcher: %w", bootstraptest.ErrSkip)
		}
		c, err := Component().Open(ctx, bootstrap.Env{Params: new(Params), Timeout: want.Timeout})
		if err != nil {
			return nil, err
		}
		return &bootstraptest.Job{
			Clients: []bootstrap.Client{c},
			Close: func() error {
				if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
					return err
				}
				return nil
			},
		}, nil
	}).Run(t)
}

func TestReopen_ManyTimes_Succeeds(t *testing.T) {
	j := testJob(t, server.Options{Size: 2, Logger: slog.New(slog.DiscardHandler)})
	peer := j.open(t, 1)
	events := listen(t, peer)
	world := []framework.Proc{{Namespace: j.srv.Namespace(), Rank: 0}, {Namespace: j.srv.Namespace(), Rank: 1}}
	for i := range 50 {
		c := j.open(t, 0)
		met := make(chan error, 1)
		go func() { met <- peer.Fence(t.Context(), world, "t") }()
		if err := errors.Join(c.Fence(t.Context(), world, "t"), <-met, c.Close()); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	j.srv.Dump() // Arrives last.
	if e := next(t, events); e.Kind != bootstrap.Dump {
		t.Errorf("event %+v, want the dump and no death", e)
	}
}

// All ranks of a large job connect and construct at once.
func TestOpen_ManyRanksAtOnce_Succeeds(t *testing.T) {
	const n = 130
	j := testJob(t, server.Options{Size: n})
	if err := j.openAll(t.Context(), n, time.Minute); err != nil {
		t.Fatal(err)
	}
	world := make([]framework.Proc, n)
	for r := range world {
		world[r] = j.clients[r].Identity().Proc
	}
	payload := make([]byte, 4<<10)
	errs := make([]error, n)
	ids := make([]uint64, n)
	var wg sync.WaitGroup
	for r, c := range j.clients {
		wg.Go(func() {
			got, err := c.Construct(t.Context(), world, "world", payload)
			ids[r], errs[r] = got.ContextID, err
			if err == nil && len(got.Payloads) != n {
				errs[r] = fmt.Errorf("%d payloads", len(got.Payloads))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for r := range ids {
		if ids[r] != 1 {
			t.Fatalf("rank %d has context id %d, want 1: the first of the job", r, ids[r])
		}
	}
}

func BenchmarkConstruct130(b *testing.B) {
	const n = 130
	for b.Loop() {
		j, err := newJob(b.TempDir(), server.Options{Size: n})
		if err != nil {
			b.Fatal(err)
		}
		if err := j.openAll(b.Context(), n, time.Minute); err != nil {
			b.Fatal(err)
		}
		world := make([]framework.Proc, n)
		for r := range world {
			world[r] = j.clients[r].Identity().Proc
		}
		var wg sync.WaitGroup
		for _, c := range j.clients {
			wg.Go(func() {
				if _, err := c.Construct(b.Context(), world, "w", make([]byte, 256)); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		if err := j.close(); err != nil {
			b.Fatal(err)
		}
	}
}
