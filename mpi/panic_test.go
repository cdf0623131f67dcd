package mpi_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/pml"
)

// raising is hooks that panic at one kind of event.
type raising struct{ kind pml.EventKind }

func (r *raising) Event(e pml.Event) {
	if e.Kind == r.kind && e.Plane == pml.PointToPoint {
		panic("from a hook")
	}
}

// panicVariable selects the panic of a child process of TestClose_DeferredDuringAPanic_Returns.
const panicVariable = "MPI_TEST_PANIC"

// panics are programs that panic within a call of ferry. Their communicator and session are
// closed by deferred calls.
var panics = map[string]func(context.Context, *raising, *mpi.Comm) error{
	"hook of a send":              exchangeAfterArming(pml.EventSend),
	"hook of a receive":           exchangeAfterArming(pml.EventRecv),
	"hook of a match":             exchangeAfterArming(pml.EventMatch),
	"hook of a path":              exchangeAfterArming(pml.EventTransportUp),
	"hook, among goroutine ranks": rankBarrier,
	"operation, goroutine ranks":  rankReduction,
}

func exchangeAfterArming(kind pml.EventKind) func(context.Context, *raising, *mpi.Comm) error {
	return func(ctx context.Context, r *raising, c *mpi.Comm) error {
		r.kind = kind
		_, err := mpi.Sendrecv(ctx, c, []byte{1}, 0, 1, make([]byte, 1), 0, 1)
		return err
	}
}

func rankBarrier(ctx context.Context, r *raising, c *mpi.Comm) error {
	return inRanks(ctx, c, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			r.kind = pml.EventSend
			return mpi.Send(ctx, c, []byte{1}, 0, 1)
		}
		_, err := mpi.Recv(ctx, c, make([]byte, 1), 1, 1)
		return err
	})
}

func rankReduction(ctx context.Context, _ *raising, c *mpi.Comm) error {
	return inRanks(ctx, c, func(ctx context.Context, c *mpi.Comm) error {
		op := mpi.NewOp(func(_, _ []int) { panic("from an operation") }, true)
		return mpi.Allreduce(ctx, c, []int{c.Rank()}, make([]int, 1), op)
	})
}

// inRanks runs f in two goroutine ranks.
func inRanks(ctx context.Context, c *mpi.Comm, f func(context.Context, *mpi.Comm) error) error {
	tc, err := mpi.NewThreadComm(ctx, c, 2)
	if err != nil {
		return err
	}
	defer tc.Close()
	return tc.Run(ctx, f)
}

// panicProgram runs one of panics. It is written as programs are.
func panicProgram(ctx context.Context, name string) error {
	r := &raising{}
	s, err := mpi.OpenSession(ctx, mpi.WithHooks(r))
	if err != nil {
		return err
	}
	defer s.Close()
	g, err := s.Group(ctx, "mpi://SELF")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, g, "panic")
	if err != nil {
		return err
	}
	defer c.Close()
	return panics[name](ctx, r, c)
}

func TestClose_DeferredDuringAPanic_Returns(t *testing.T) {
	if name := os.Getenv(panicVariable); name != "" {
		go func() { t.Log(panicProgram(context.Background(), name)) }() // testing's own deferred calls are not above it
		select {}
	}
	for _, pmlName := range []string{"ob1", "cm"} {
		for name := range panics {
			t.Run(pmlName+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestClose_DeferredDuringAPanic_Returns$")
				cmd.Env = append(os.Environ(), panicVariable+"="+name, "FERRY_PML="+pmlName)
				out, err := cmd.CombinedOutput()
				if ctx.Err() != nil {
					t.Fatalf("it hangs: %s", out)
				}
				if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "panic: from a") {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
	}
}
