package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

func TestWaits_WaitOfACollective_NamesTheMissingRank(t *testing.T) {
	stacks := maps.Clone(stacksOfRevoke)
	stacks["ob1+shm, by messages"] = map[string]string{"pml": "ob1", "coll": "basic"}
	for name, params := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(2, params).RunSessions(t, inWorld(waitsOfCollectives))
		})
	}
}

// waitsOfCollectives lets rank 0 wait for collectives. Rank 1 calls each once rank 0 has read it in its own report.
func waitsOfCollectives(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	in, out := []int{1}, []int{0}
	for range 2 { // The second one opens the collective segment.
		if err := mpi.Barrier(ctx, c); err != nil {
			return err
		}
	}
	p, err := mpi.AllreduceInit(ctx, c, in, out, mpi.Sum[int]())
	if err != nil {
		return err
	}
	for _, x := range []struct {
		want string
		call func() error
	}{
		{"waits in a collective for rank 1", func() error { return mpi.Allreduce(ctx, c, in, out, mpi.Sum[int]()) }},
		{"waits in Wait of a collective for rank 1", func() error {
			q, err := mpi.Iallreduce(c, in, out, mpi.Sum[int]())
			if err != nil {
				return err
			}
			return second(q.Wait(ctx))
		}},
		{"waits in Wait of a collective for rank 1", func() error { return errors.Join(p.Start(), second(p.Wait(ctx))) }},
	} {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
			if err := x.call(); err != nil {
				return err
			}
			continue
		}
		done := make(chan error, 1)
		go func() { done <- x.call() }()
		err := reports(ctx, s, x.want)
		if err := errors.Join(err, c.Send(ctx, nil, 1, 0), <-done); err != nil {
			return err
		}
	}
	return p.Free()
}

// reports blocks until the report of a process has a wait that begins with want.
func reports(ctx context.Context, s *mpi.Session, want string) error {
	for {
		waits := mpi.Waits(s)
		if slices.ContainsFunc(waits, func(text string) bool { return strings.HasPrefix(text, want) }) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no %q in %q: %w", want, waits, context.Cause(ctx))
		}
		runtime.Gosched()
	}
}
