package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("FERRY_CONFIG", os.DevNull); err != nil { // no user's file in tests
		panic(err)
	}
	// Tests with separate processes, which are killed or counted.
	localtest.Main(m, map[string]localtest.Program{
		"agreekilled":  asProcess(agreeKilled),
		"allocations":  asProcess(allocations),
		"cut":          asProcess(cut),
		"dead":         dead,
		"failed":       asProcess(failedInOrder),
		"killed":       asProcess(killed),
		"nowhere":      nowhere,
		"pending":      asProcess(pendingReceives),
		"pendingranks": asProcess(pendingInRanks),
		"report":       asProcess(report),
		"revokeanddie": asProcess(revokeAndDie),
	})
}

// ranks runs a program as n ranks of a job, goroutines of the test, under parameters
// such as "cid.policy=lazy". Jobs run beside one another, after the tests that open a
// session of this process: that would join the engine of a job.
func ranks(t *testing.T, n int, program func(context.Context) error, params ...string) {
	t.Helper()
	t.Parallel()
	job := mpitest.Job{Size: n, Params: map[string]string{}}
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		job.Params[name] = value
	}
	job.RunSessions(t, program)
}

type worldProgram func(ctx context.Context, s *mpi.Session, c *mpi.Comm) error

// policies runs a program of n ranks under each of these policies of communicator ids.
func policies(t *testing.T, n int, program func(context.Context) error, names ...string) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) { ranks(t, n, program, "cid.policy="+name) })
	}
}

// inWorld runs f with a communicator of all ranks.
func inWorld(f worldProgram) func(context.Context) error { return f.over(mpitest.Open) }

// asProcess is inWorld for a separate process.
func asProcess(f worldProgram) localtest.Program { return f.over(mpi.OpenSession) }

func (f worldProgram) over(open func(context.Context, ...mpi.SessionOption) (*mpi.Session, error)) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, world, "test")
		if err != nil {
			return err
		}
		if err := f(ctx, s, c); err != nil {
			return err
		}
		return errors.Join(c.Close(), s.Close())
	}
}

// must turns a condition that does not hold into an error.
func must(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// wants checks that err answers a sentinel.
func wants(what string, err, sentinel error) error {
	return must(errors.Is(err, sentinel), "%s: error %v, want one that is %q", what, err, sentinel)
}

// singleton opens a session and a communicator of this test process alone.
func singleton(t *testing.T, opts ...mpi.SessionOption) (*mpi.Session, *mpi.Comm) {
	t.Helper()
	s, err := mpi.OpenSession(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Group(t.Context(), "mpi://SELF")
	if err != nil {
		t.Fatal(err)
	}
	c, err := mpi.CommFromGroup(t.Context(), g, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, mpi.ErrClosed) {
			t.Error(err)
		}
		if err := s.Close(); err != nil && !errors.Is(err, mpi.ErrClosed) {
			t.Error(err)
		}
	})
	return s, c
}
