package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

func TestMemory_Open_SessionCloseReturnsErrPending(t *testing.T) {
	noLeak(t)
	s, c := singleton(t)
	m, err := mpi.AllocMem(s, 1001)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := mpi.AllocMem(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b, x := mpi.View[byte](m), mpi.View[float64](m); len(b) != 1001 || len(x) != 125 || mpi.View[string](m) != nil || len(mpi.View[int](empty)) != 0 {
		t.Errorf("views of %d bytes, %d numbers", len(b), len(x))
	} else if x[3] = -1; b[3*8+7] == 0 {
		t.Error("views do not share their memory")
	} else if slices.Max(b[32:]) != 0 {
		t.Error("new memory is not zeroed")
	}
	for _, bytes := range []int{-1, 1 << 60} {
		if _, err := mpi.AllocMem(s, bytes); !errors.Is(err, mpi.ErrUnsupported) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	if err := errors.Join(c.Close(), empty.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, mpi.ErrPending) {
		t.Errorf("close with open memory: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); !errors.Is(err, mpi.ErrClosed) || mpi.View[byte](m) != nil {
		t.Errorf("a second close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mpi.AllocMem(s, 1); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("after the session's close: %v", err)
	}
}

func TestMemoryClose_MessageInProgress_ReturnsErrPending(t *testing.T) { ranks(t, 2, inWorld(memory)) }

func memory(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	const n = 1 << 20
	for round := range 3 {
		m, err := mpi.AllocMem(s, n*8)
		if err != nil {
			return err
		}
		x := mpi.View[int64](m)
		if c.Rank() == 0 {
			for i := range x {
				x[i] = int64(i * (round + 1))
			}
			r, err := mpi.Isend(c, x[1:], 1, 0)
			if err != nil {
				return err
			}
			if err := wants("close with a send in progress", m.Close(), mpi.ErrPending); err != nil {
				return err
			}
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		} else {
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			if st, err := mpi.Recv(ctx, c, x, 0, 0); err != nil || st.Bytes != (n-1)*8 {
				return fmt.Errorf("round %d: %+v, %v", round, st, err)
			}
			for i := range n - 1 {
				if x[i] != int64((i+1)*(round+1)) {
					return fmt.Errorf("round %d: element %d is %d", round, i, x[i])
				}
			}
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}
