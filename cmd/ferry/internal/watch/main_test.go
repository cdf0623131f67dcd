package watch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/mpi"
)

// envProgram makes this program one of the programs for ranks.
const envProgram = "WATCH_TEST_PROGRAM"

var programs = map[string]func() error{"elastic": elastic, "listener": listener}

func TestMain(m *testing.M) {
	if program := programs[os.Getenv(envProgram)]; program != nil {
		if err := program(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// elastic integrates the changes that users request, until the job is ended. After each, all members exchange messages.
func elastic() error {
	ctx := context.Background()
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	pset, comm := "mpi://WORLD", (*mpi.Comm)(nil)
	change, isAdded, err := session.ResourceChange(ctx, "mpi://SELF")
	if err != nil {
		return err
	}
	if !isAdded {
		if comm, err = exchange(ctx, session, pset, comm); err != nil {
			return err
		}
	}
	for ; ; isAdded = false {
		if !isAdded {
			if change, err = session.ResourceChangeAsync(pset).Wait(ctx); err != nil {
				return err
			}
		}
		if change.Type == mpi.ChangeFailed {
			continue
		}
		got, err := session.Integrate(ctx, change.Delta, "")
		if errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrTimeout) || errors.Is(err, mpi.ErrCanceled) {
			continue // Undone.
		}
		if err != nil {
			return err
		}
		if pset = got.Pset; got.Terminate {
			return errors.Join(comm.Close(), session.Close())
		}
		comm, err = exchange(ctx, session, pset, comm)
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) { // A test may kill a member now.
			return err
		}
	}
}

// exchange sends messages among the members of a set. It returns their communicator, and closes the previous one. After an error the
// previous one remains.
func exchange(ctx context.Context, session *mpi.Session, pset string, previous *mpi.Comm) (*mpi.Comm, error) {
	group, err := session.Group(ctx, pset)
	if err != nil {
		return previous, err
	}
	comm, err := mpi.CommFromGroup(ctx, group, pset)
	if err != nil {
		return previous, err
	}
	right, left := (comm.Rank()+1)%comm.Size(), (comm.Rank()+comm.Size()-1)%comm.Size()
	for range 3 {
		if _, err := comm.Sendrecv(ctx, make([]byte, 8), right, 0, make([]byte, 8), left, 0); err != nil {
			return previous, err
		}
	}
	if previous != nil {
		err = previous.Close()
	}
	return comm, err
}

// listener prints the kind of each message from the launcher, and ends with its input.
func listener() error {
	client, err := local.Dial(context.Background(), os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	source := client.(bootstrap.EventSource)
	source.OnEvent(func(ev bootstrap.Event) { fmt.Println("event", ev.Kind, ev.Reason) })
	source.BeginIncarnation(1)
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
	}
	return client.Close()
}

// patience bounds each wait of a test.
const patience = 60 * time.Second

// await waits for a condition.
func await(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !isTrue(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
