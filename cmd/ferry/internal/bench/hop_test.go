package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/mpi"
)

func TestMain(m *testing.M) {
	localtest.Main(m, map[string]localtest.Program{"hop": hopWithTheDead, "crowd": hopInACrowd})
}

// A raw hop with a dead process would wait for seconds, without a reason.
func TestRawHop_OtherProcessDies_Ends(t *testing.T) {
	r := localtest.RunJob(t, localtest.Job{Size: 2, Program: "hop", MayFail: true})
	if r.Exit[0] != nil || r.Exit[1] == nil {
		t.Errorf("%v\n%s", r.Exit, r.Output)
	}
}

// world opens a session and makes a communicator of all ranks.
func world(ctx context.Context, tag string) (*mpi.Session, *mpi.Comm, error) {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	all, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, nil, err
	}
	c, err := mpi.CommFromGroup(ctx, all, tag)
	return s, c, err
}

func hopWithTheDead(ctx context.Context) error {
	s, c, err := world(ctx, "hop")
	if err != nil {
		return err
	}
	r := &rank{comm: c, o: new(options)}
	if err := r.openLine(ctx); err != nil {
		return err
	}
	if _, err := r.rawHop(ctx); err != nil {
		return err
	}
	if c.Rank() == 1 {
		os.Exit(3)
	}
	if _, err := r.rawHop(ctx); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("the raw hop ended with %w", err)
	}
	return errors.Join(c.Close(), s.Close(), r.lineMapping.Close())
}

// A raw hop of two ranks on one processor takes milliseconds, while the others sleep in their first barrier.
// Connected ranks that sleep do not count as oversubscription.
func TestRawHop_Oversubscribed_IsSkipped(t *testing.T) {
	r := localtest.RunJob(t, localtest.Job{Size: cpu.ForRanks() + 1, Program: "crowd"})
	for rank, err := range r.Exit {
		if err != nil {
			t.Errorf("rank %d: %v\n%s", rank, err, r.Output)
		}
	}
}

func hopInACrowd(ctx context.Context) error {
	s, c, err := world(ctx, "crowd")
	if err != nil {
		return err
	}
	r := &rank{comm: c, o: new(options)}
	if err := r.openLine(ctx); err != nil {
		return err
	}
	if ns, err := r.rawHop(ctx); ns != 0 || err != nil {
		return fmt.Errorf("a raw hop of %g ns; %w", ns, err)
	}
	if cpu.ForRanks() >= 2 {
		r.o.connectedRanks = 2
		if err := r.openLine(ctx); err != nil {
			return err
		}
		if ns, err := r.rawHop(ctx); (ns > 0) != (c.Rank() < 2) || err != nil {
			return fmt.Errorf("a raw hop of %g ns between ranks beside sleepers; %w", ns, err)
		}
	}
	return errors.Join(c.Close(), s.Close())
}
