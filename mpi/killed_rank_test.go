package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

// operations are calls that wait for rank victim, directly or through others.
// Each returns the error with which it ended.
var operations = map[string]func(ctx context.Context, c *mpi.Comm, victim int) error{
	"recv": func(ctx context.Context, c *mpi.Comm, victim int) error {
		_, err := c.Recv(ctx, make([]byte, 8), victim, 1)
		return err
	},
	"recv-any": func(ctx context.Context, c *mpi.Comm, _ int) error {
		_, err := c.Recv(ctx, make([]byte, 8), mpi.AnySource, 1)
		return err
	},
	"probe": func(ctx context.Context, c *mpi.Comm, victim int) error {
		_, err := c.Probe(ctx, victim, 1)
		return err
	},
	"mprobe": func(ctx context.Context, c *mpi.Comm, _ int) error {
		_, _, err := c.Mprobe(ctx, mpi.AnySource, 1)
		return err
	},
	"ssend": func(ctx context.Context, c *mpi.Comm, victim int) error {
		return c.Ssend(ctx, make([]byte, 8), victim, 1)
	},
	"large-send": func(ctx context.Context, c *mpi.Comm, victim int) error {
		return c.Send(ctx, make([]byte, 4<<20), victim, 1)
	},
	"sendrecv": func(ctx context.Context, c *mpi.Comm, victim int) error {
		_, err := c.Sendrecv(ctx, make([]byte, 4<<20), victim, 1, make([]byte, 4<<20), victim, 1)
		return err
	},
	"persistent": func(ctx context.Context, c *mpi.Comm, victim int) error {
		p, err := c.RecvInit(make([]byte, 8), victim, 1)
		if err != nil {
			return err
		}
		if err := p.Start(); err != nil {
			return err
		}
		_, err = p.Wait(ctx)
		return errors.Join(err, p.Free())
	},
	"wait-any": func(ctx context.Context, c *mpi.Comm, victim int) error {
		reqs := make([]mpi.Request, 20)
		for i := range reqs {
			var err error
			if reqs[i], err = c.Irecv(make([]byte, 8), victim, i+1); err != nil {
				return err
			}
		}
		_, _, err := mpi.WaitAny(ctx, reqs)
		_, someErr := mpi.WaitSome(ctx, reqs, make([]int, len(reqs)), nil)
		if err := wants("WaitSome", someErr, mpi.ErrProcFailed); err != nil {
			return err
		}
		return err
	},
	"barrier": func(ctx context.Context, c *mpi.Comm, _ int) error {
		for { // rounds that the victim still takes part in
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
		}
	},
	"bcast": func(ctx context.Context, c *mpi.Comm, victim int) error {
		buf := make([]byte, 4<<20)
		for {
			if err := mpi.Bcast(ctx, c, buf, victim); err != nil {
				return err
			}
		}
	},
	"allreduce": func(ctx context.Context, c *mpi.Comm, _ int) error {
		x := make([]float64, 100_000)
		for {
			if err := mpi.Allreduce(ctx, c, nil, x, mpi.Sum[float64]()); err != nil {
				return err
			}
		}
	},
	"gather": func(ctx context.Context, c *mpi.Comm, _ int) error {
		in, out := make([]byte, 100_000), make([]byte, 100_000*c.Size())
		for {
			if err := mpi.Gather(ctx, c, in, out, 1); err != nil {
				return err
			}
		}
	},
	"alltoallv": func(ctx context.Context, c *mpi.Comm, _ int) error {
		counts := []int{0, 1, 5000, 100_000, 7}
		in := make([]byte, 200_000)
		mine := counts[c.Rank()] // The data for a rank depends only on that rank.
		recvs := []int{mine, mine, mine, mine, mine}
		out := make([]byte, 5*mine)
		for {
			if err := mpi.Alltoallv(ctx, c, in, counts, nil, out, recvs, nil); err != nil {
				return err
			}
		}
	},
	"reduce-scatter": func(ctx context.Context, c *mpi.Comm, _ int) error {
		in, out := make([]float64, 50_000), make([]float64, 10_000)
		for {
			if err := mpi.ReduceScatterBlock(ctx, c, in, out, mpi.Sum[float64]()); err != nil {
				return err
			}
		}
	},
	"iallreduce": func(ctx context.Context, c *mpi.Comm, _ int) error {
		x := make([]float64, 100_000) // combined in a goroutine
		for {
			r, err := mpi.Iallreduce(c, nil, x, mpi.Sum[float64]())
			if err != nil {
				return err
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		}
	},
	"many-nonblocking": func(ctx context.Context, c *mpi.Comm, victim int) error {
		bufs, reqs := make([][]byte, 50), make([]mpi.Request, 50)
		for {
			for i := range reqs {
				var err error
				bufs[i] = make([]byte, 3000*i)
				if reqs[i], err = mpi.Ibcast(c, bufs[i], (victim+i)%c.Size()); err != nil {
					return errors.Join(err, mpi.WaitAll(ctx, reqs[:i], nil))
				}
			}
			if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
				return err
			}
		}
	},
	"split": func(ctx context.Context, c *mpi.Comm, _ int) error {
		return again(func() (*mpi.Comm, error) { return c.Split(ctx, 0, 0) })
	},
	"create": func(ctx context.Context, c *mpi.Comm, _ int) error {
		return again(func() (*mpi.Comm, error) { return c.Create(ctx, c.Group()) })
	},
	"create-group": func(ctx context.Context, c *mpi.Comm, victim int) error {
		g, err := c.Group().Incl(victim, c.Rank()) // which the victim draws the id of
		if err != nil {
			return err
		}
		return again(func() (*mpi.Comm, error) { return c.CreateGroup(ctx, g, c.Rank()) })
	},
	"from-group": func(ctx context.Context, c *mpi.Comm, _ int) error {
		return again(func() (*mpi.Comm, error) { return mpi.CommFromGroup(ctx, c.Group(), "again") })
	},
}

// again makes communicators until it can't.
func again(f func() (*mpi.Comm, error)) error {
	for {
		d, err := f()
		if err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
}

func TestCall_PeerKilled_Ends(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ranks = 5
			r := localtest.RunJob(t, localtest.Job{
				Size: ranks, Program: "killed", MayFail: true, Timeout: 30 * time.Second, Env: []string{"OPERATION=" + name, fmt.Sprint(envSeed, "=", seed(t))},
			})
			for rank := range ranks - 1 {
				if r.Exit[rank] != nil {
					t.Errorf("rank %d: %v\n%s", rank, r.Exit[rank], r.Output[rank])
				}
			}
			if r.Exit[ranks-1] == nil {
				t.Error("the victim lives")
			}
		})
	}
}

func killed(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	f, victim := operations[os.Getenv("OPERATION")], c.Size()-1
	if c.Rank() == victim {
		// It dies at any moment from before the others' calls on.
		rng := seedOf(os.Getenv(envSeed)).of(victim)
		turns := 1 << rng.IntN(14)
		for rank := range victim {
			if _, err := c.Recv(ctx, nil, rank, 99); err != nil {
				return err
			}
		}
		go func() {
			for range turns {
				runtime.Gosched()
			}
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				panic(err)
			}
		}()
		switch os.Getenv("OPERATION") {
		case "barrier", "bcast", "allreduce", "gather", "alltoallv", "reduce-scatter", "iallreduce", "many-nonblocking", "split", "create", "from-group":
			return f(ctx, c, victim)
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if err := c.Send(ctx, nil, victim, 99); err != nil {
		return err
	}
	err := f(ctx, c, victim)
	if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrProcFailedPending) {
		return fmt.Errorf("ended with %w", err)
	}
	// The others go on, with messages and with a communicator of their own.
	next, before := (c.Rank()+1)%victim, (c.Rank()+victim-1)%victim
	in := make([]byte, 1)
	if _, err := c.Sendrecv(ctx, []byte{byte(c.Rank())}, next, 5, in, before, 5); err != nil || in[0] != byte(before) {
		return fmt.Errorf("after it: %v, %w", in, err)
	}
	rest, err := c.Group().Excl(victim)
	if err != nil {
		return err
	}
	d, err := mpi.CommFromGroup(ctx, rest, "survivors")
	if err != nil {
		return err
	}
	e, err := d.Dup(ctx)
	if err != nil {
		return err
	}
	return errors.Join(mpi.Barrier(ctx, e), e.Close(), d.Close())
}
