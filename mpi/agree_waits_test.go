package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/pml"
)

func TestWaits_RanksAreLate_AreNamed(t *testing.T) {
	t.Parallel()
	mpitest.Run(t, 5, func(ctx context.Context, c *mpi.Comm) error {
		c.SetName("world")
		shrink := func() error {
			d, err := c.Shrink(ctx)
			return errors.Join(err, d.Close())
		}
		if c.Rank() == 1 || c.Rank() == 4 {
			_, err := c.Recv(ctx, nil, 0, 1)
			return errors.Join(err, shrink())
		}
		if c.Rank() != 0 {
			return shrink()
		}
		ended := make(chan error)
		go func() { ended <- shrink() }()
		want := []string{`waits in Shrink for ranks 1 and 4, communicator "world"`}
		var waits []string
		for ctx.Err() == nil && !slices.Equal(waits, want) {
			waits = mpi.AgreementWaits(c)
			runtime.Gosched()
		}
		err := must(ctx.Err() == nil, "waits are %q", waits)
		return errors.Join(err, c.Send(ctx, nil, 1, 1), c.Send(ctx, nil, 4, 1), <-ended)
	})
}

// agreementHooks record the ends of collectives.
type agreementHooks struct {
	mu   sync.Mutex
	ends []string
}

func (*agreementHooks) Event(pml.Event) {}

func (h *agreementHooks) Collective(_ context.Context, op mpi.CollectiveOp) func(error) {
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ends = append(h.ends, fmt.Sprint(op.Name, " ", op.Seq, " ", err))
	}
}

func TestHooks_AgreeAndShrink_AreSeen(t *testing.T) {
	t.Parallel()
	var hooks [2]agreementHooks
	job := mpitest.Job{Size: 2, Options: func(rank int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithHooks(&hooks[rank])}
	}}
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		_, err := c.Agree(ctx, 1)
		d, shrunk := c.Shrink(ctx)
		return errors.Join(err, shrunk, d.Close())
	})
	for rank := range hooks {
		if got, want := hooks[rank].ends, []string{"agree 0 <nil>", "shrink 1 <nil>"}; !slices.Equal(got, want) {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}
