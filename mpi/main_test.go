package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/mpi"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("FERRY_CONFIG", os.DevNull); err != nil { // no user's file in tests
		panic(err)
	}
	localtest.Main(m, map[string]localtest.Program{
		"allocations":     inWorld(allocations),
		"arguments":       inWorld(arguments),
		"back-to-back":    backToBack,
		"both-ways":       inWorld(bothWays),
		"bsend":           inWorld(bsend),
		"broken":          inWorld(broken),
		"collectives":     inWorld(collectives),
		"contexts":        inWorld(contexts),
		"create":          inWorld(create),
		"create-group":    inWorld(createGroup),
		"dead":            dead,
		"dup-first":       inWorld(dupFirst),
		"ended-creations": inWorld(endedCreations),
		"withdraw":        inWorld(withdraw),
		"exhausted":       exhausted,
		"goroutines":      inWorld(goroutines),
		"idup":            inWorld(idup),
		"killed":          inWorld(killed),
		"late-card":       lateCard,
		"layouts":         inWorld(layouts),
		"linger":          linger,
		"many-dups":       inWorld(manyDups),
		"missing":         missing,
		"memory":          inWorld(memory),
		"mixed-tags":      inWorld(mixedTags),
		"mixed":           mixed,
		"mprobe":          inWorld(mprobe),
		"overlap":         overlap,
		"persistent":      inWorld(persistent),
		"psets":           psets,
		"report":          inWorld(report),
		"requests":        inWorld(requests),
		"rsend":           inWorld(rsend),
		"sessions":        sessions,
		"some":            inWorld(some),
		"split":           inWorld(split),
		"stats":           inWorld(stats),
		"unexpected":      inWorld(unexpected),
		"values":          values,
	})
}

// inWorld runs f with a communicator of all processes.
func inWorld(f func(ctx context.Context, s *mpi.Session, c *mpi.Comm) error) localtest.Program {
	return func(ctx context.Context) (err error) {
		s, err := mpi.OpenSession(ctx)
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
