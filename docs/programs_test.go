package docs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/mpi"
)

// TestMain is also `ferry`, and the pages' bin/program.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "ferry":
		ferrytest.Ferry()
	case "program":
		if err := programs[os.Getenv("DOCS_PROGRAM")](context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "program:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// programs are the programs behind the pages' bin/program.
var programs = map[string]func(context.Context) error{
	"":         with("program", exchange),
	"exchange": with("program", exchange),
	"hang":     with("halo", hang),
	"dies":     with("program", dies),
	"absent":   absent,
}

// with runs f with a communicator of all ranks.
func with(tag string, f func(context.Context, *mpi.Comm) error) func(context.Context) error {
	return func(ctx context.Context) error {
		session, err := mpi.OpenSession(ctx)
		if err != nil {
			return err
		}
		defer session.Close()
		world, err := session.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		comm, err := mpi.CommFromGroup(ctx, world, tag)
		if err != nil {
			return err
		}
		defer comm.Close()
		return f(ctx, comm)
	}
}

func exchange(ctx context.Context, c *mpi.Comm) error {
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()-1+c.Size())%c.Size()
	if _, err := c.Sendrecv(ctx, []byte{1}, to, 0, make([]byte, 1), from, 0); err != nil {
		return err
	}
	return mpi.Barrier(ctx, c)
}

// hang has ranks 0 and 1 wait for each other, and rank 2 for rank 1.
func hang(ctx context.Context, c *mpi.Comm) error {
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	var err error
	switch c.Rank() {
	case 0:
		_, err = c.Recv(ctx, make([]byte, 1), 1, 7)
	case 1:
		_, err = c.Recv(ctx, make([]byte, 1), 0, mpi.AnyTag)
	case 2:
		err = mpi.Barrier(ctx, c)
	}
	time.Sleep(time.Minute) // until the launcher ends it
	return err
}

// dies has rank 1 exit while rank 0 waits for it.
func dies(ctx context.Context, c *mpi.Comm) error {
	if c.Rank() == 1 {
		os.Exit(3)
	}
	_, err := c.Recv(ctx, make([]byte, 1), 1, 0)
	return err
}

// absent makes no calls in rank 1.
func absent(ctx context.Context) error {
	if os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK") == "1" {
		time.Sleep(time.Minute) // until the launcher ends it
	}
	return with("hang", exchange)(ctx)
}
