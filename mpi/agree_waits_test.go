package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
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

func TestHooks_AgreeShrinkAndRevoke_AreSeen(t *testing.T) {
	t.Parallel()
	var hooks [2]agreementHooks
	job := mpitest.Job{Size: 2, Options: func(rank int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithHooks(&hooks[rank])}
	}}
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		_, err := c.Agree(ctx, 1)
		d, shrunk := c.Shrink(ctx)
		if err := errors.Join(err, shrunk); err != nil {
			return err
		}
		if c.Rank() == 0 {
			err = d.Revoke()
		}
		return errors.Join(err, d.Close())
	})
	for rank, want := range [][]string{{"agree 0 <nil>", "shrink 1 <nil>", "revoke 0 <nil>"}, {"agree 0 <nil>", "shrink 1 <nil>"}} {
		if got := hooks[rank].ends; !slices.Equal(got, want) {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestLog_AgreeShrinkAndRevoke_OutcomesAreLogged(t *testing.T) {
	t.Parallel()
	var logs [3]lockedBuffer
	job := mpitest.Job{Size: 3, Options: func(rank int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithLogger(slog.New(slog.NewTextHandler(&logs[rank], &slog.HandlerOptions{Level: slog.LevelDebug})))}
	}}
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
		if _, err := c.Agree(ctx, 6); err != nil {
			return err
		}
		if c.Rank() == 1 {
			mpitest.Die(ctx)
		}
		if err := awaitFailures(ctx, c, 1); err != nil {
			return err
		}
		if _, err := c.Agree(ctx, 5); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("agree: %w", err)
		}
		d, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		return errors.Join(d.Revoke(), d.Close()) // The other rank may have revoked it before.
	})
	for _, rank := range []int{0, 2} {
		if log := logs[rank].String(); !containsAll(log,
			`msg="Agree is decided"`, "instance=0 value=0x6\n", "instance=1 value=0x5 failed=\"rank 1\"",
			`msg="Agree returns an error"`, `msg="Shrink is decided"`, "instance=2 new=", "revoke") {
			t.Errorf("rank %d logs:\n%s", rank, log)
		}
	}
}
