package launchers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// member is a process of a job whose main set changes.
type member struct {
	session *mpi.Session
	main    string
	comm    *mpi.Comm
	// Number of finished changes, equal in all members.
	changes []int64
}

// join opens a session, and integrates an added process.
func join(ctx context.Context) (*member, error) {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return nil, err
	}
	m := &member{session: session, changes: []int64{0}}
	world, err := session.PsetInfo(ctx, "mpi://WORLD")
	if m.main = world.Name; err == nil && world.Dynamic {
		var joined mpi.Integration
		joined, err = session.Integrate(ctx, "mpi://SELF", "")
		m.main = joined.Pset
	}
	if err == nil {
		err = m.connect(ctx)
	}
	return m, err
}

// connect makes a communicator of the main set, and exchanges messages on it.
func (m *member) connect(ctx context.Context) error {
	group, err := m.session.Group(ctx, m.main)
	if err != nil {
		return err
	}
	if m.comm, err = mpi.CommFromGroup(ctx, group, "org.example.launchers"); err != nil {
		return err
	}
	size := []int64{0}
	err = errors.Join(mpi.Bcast(ctx, m.comm, m.changes, 0), mpi.Allreduce(ctx, m.comm, []int64{1}, size, mpi.Sum[int64]()))
	if err == nil && int(size[0]) != m.comm.Size() {
		err = fmt.Errorf("the sum over %d processes is %d", m.comm.Size(), size[0])
	}
	if m.comm.Rank() == 0 {
		fmt.Printf("%d processes\n", size[0])
	}
	return err
}

// change changes the main set by an operation of rank 0. isLast is true in a process that leaves.
func (m *member) change(ctx context.Context, op mpi.PsetOp, args mpi.PsetArgs) (isLast bool, err error) {
	name := make([]byte, 64)
	if m.comm.Rank() == 0 {
		names, err := m.session.PsetOp(ctx, op, []string{m.main}, args)
		if err != nil {
			return false, err
		}
		copy(name, names[0])
	}
	if err := errors.Join(mpi.Bcast(ctx, m.comm, name, 0), m.comm.Close()); err != nil {
		return false, err
	}
	delta := string(bytes.TrimRight(name, "\x00"))
	next, err := m.session.Integrate(ctx, delta, "")
	if err != nil || next.Terminate {
		return true, err
	}
	m.main = next.Pset
	m.changes[0]++
	if err := m.connect(ctx); err != nil {
		return false, err
	}
	if m.comm.Rank() == 0 {
		err = m.session.FinishChange(ctx, delta)
	}
	return false, err
}

// addsAndRemoves adds two processes and removes them, twice.
func addsAndRemoves(ctx context.Context) error {
	m, err := join(ctx)
	if err != nil {
		return err
	}
	for m.changes[0] < 4 {
		op, args := mpi.PsetGrow, mpi.PsetArgs{Add: 2}
		if m.changes[0]%2 == 1 {
			op, args = mpi.PsetShrink, mpi.PsetArgs{Sub: 2}
		}
		isLast, err := m.change(ctx, op, args)
		if err != nil || isLast {
			return errors.Join(err, m.session.Close())
		}
	}
	return errors.Join(mpi.Barrier(ctx, m.comm), m.comm.Close(), m.session.Close())
}

func TestAdded_JobGrowsAndShrinks_MessagesArrive(t *testing.T) {
	Each(t, Spawners(), func(t *testing.T, l *Started) {
		res := l.RunToEnd(t, Job{Size: 2, Program: "adds-and-removes"})
		if out := res.Ranks[0].Output; out != "2 processes\n4 processes\n2 processes\n4 processes\n2 processes\n" {
			t.Errorf("rank 0: %q", out)
		}
		if len(res.AddedRanks) != 4 {
			t.Errorf("%d processes were added: %v", len(res.AddedRanks), res)
		}
		for _, a := range res.AddedRanks {
			if !a.HasReturned || a.Err != "" {
				t.Errorf("an added process: %+v", a)
			}
		}
	})
}

func buildElastic(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "elastic")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../examples/elastic").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// A job adds and removes processes one by one, and leaves none.
func TestAdded_TwentyChanges_JobEndsInOrder(t *testing.T) {
	example := buildElastic(t)
	Each(t, Spawners(), func(t *testing.T, l *Started) {
		r := l.Begin(t, Job{Size: 2, Program: example, ProgramArgs: []string{"-to", "4", "-rounds", "20"}})
		res := r.Wait()
		if res.LauncherErr != nil || !strings.HasPrefix(res.Ranks[0].Output, "ok: 21 rounds and 20 changes, ") {
			t.Fatal(res)
		}
		t.Logf("%s in %v", strings.TrimSpace(res.Ranks[0].Output), res.ElapsedTime)
		if left := r.AwaitEnd(endTimeout); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Rank 0 requests more processes than the job may have, and ends. The added processes end as well.
func TestAdded_Rank0Ends_AddedProcessesEnd(t *testing.T) {
	example := buildElastic(t)
	Each(t, []Launcher{Hydra}, func(t *testing.T, l *Started) {
		r := l.Begin(t, Job{Size: 1, Program: example, ProgramArgs: []string{"-to", "6"}})
		res := r.Wait()
		if res.LauncherErr == nil || strings.Contains(res.LauncherErr.Error(), "killed after") || !strings.Contains(res.Ranks[0].Output, "bootstrap.max_ranks") {
			t.Fatal(res)
		}
		if left := r.AwaitEnd(endTimeout); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// losesAdded adds a process, which kills itself. The others get an error, and a smaller set.
func losesAdded(ctx context.Context) error {
	m, err := join(ctx)
	if err != nil {
		return err
	}
	if m.changes[0] == 0 {
		if _, err := m.change(ctx, mpi.PsetGrow, mpi.PsetArgs{Add: 1}); err != nil {
			return err
		}
	}
	if m.comm.Rank() == 2 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if _, err := m.comm.Recv(ctx, nil, 2, 0); !errors.Is(err, mpi.ErrProcFailed) {
		return fmt.Errorf("receive from the killed process: %w", err)
	}
	survivors, err := m.comm.Shrink(ctx)
	if err != nil {
		return err
	}
	if survivors.Size() != 2 {
		err = fmt.Errorf("%d processes are left", survivors.Size())
	}
	return errors.Join(err, mpi.Barrier(ctx, survivors), survivors.Close(), m.comm.Close(), m.session.Close())
}

func TestAdded_ProcessDies_OthersContinue(t *testing.T) {
	Each(t, spawners(Survivable()), func(t *testing.T, l *Started) {
		r := l.Begin(t, Job{Size: 2, Program: "loses-added"})
		res := r.Wait() // The segment of the killed process is left.
		for i, rank := range res.Ranks {
			if !rank.HasReturned || rank.Err != "" {
				t.Errorf("rank %d: %+v", i, rank)
			}
		}
		if len(res.AddedRanks) != 1 || res.AddedRanks[0].HasReturned {
			t.Error(res)
		}
		if left := r.AwaitEnd(endTimeout); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// cannotGrow requests a process.
func cannotGrow(ctx context.Context) error {
	m, err := join(ctx)
	if err != nil {
		return err
	}
	if m.comm.Rank() == 0 {
		_, err = m.session.PsetOp(ctx, mpi.PsetGrow, []string{m.main}, mpi.PsetArgs{Add: 1})
		fmt.Println(errors.Is(err, mpi.ErrUnsupported), err)
	}
	return errors.Join(mpi.Barrier(ctx, m.comm), m.comm.Close(), m.session.Close())
}

func TestAdded_SlurmPMIx_ErrorNamesIt(t *testing.T) {
	res := SlurmPMIx.Start(t).RunToEnd(t, Job{Size: 2, Program: "cannot-grow"})
	if out := res.Ranks[0].Output; !strings.Contains(out, "true ") || !strings.Contains(out, "Slurm's pmix can't start processes") {
		t.Error(out)
	}
}

// splits makes sets of mpi://WORLD, and reads their data in all processes.
func splits(ctx context.Context) error {
	m, err := join(ctx)
	if err != nil {
		return err
	}
	builtin, err := m.session.Psets(ctx)
	if err = errors.Join(err, mpi.Barrier(ctx, m.comm)); err != nil {
		return err
	}
	name := make([]byte, 64)
	if m.comm.Rank() == 0 {
		names, err := m.session.PsetOp(ctx, mpi.PsetSplit, []string{m.main}, mpi.PsetArgs{Sizes: []int{1, m.comm.Size() - 1}})
		if err != nil {
			return err
		}
		copy(name, names[1])
		if err := m.session.PublishData(ctx, names[1], "key", []byte("value")); err != nil {
			return err
		}
	}
	if err := mpi.Bcast(ctx, m.comm, name, 0); err != nil {
		return err
	}
	set := string(bytes.TrimRight(name, "\x00"))
	info, err := m.session.PsetInfo(ctx, set)
	if err != nil {
		return err
	}
	value, err := m.session.LookupData(ctx, set, "key")
	if err != nil {
		return err
	}
	names, err := m.session.Psets(ctx)
	fmt.Printf("%d of %d, included %t, %s, %q, added last %t\n", info.Size, m.comm.Size(), info.Included, value, builtin[:2], len(names) > len(builtin) && names[len(names)-1] == set)
	return errors.Join(err, mpi.Barrier(ctx, m.comm), m.comm.Close(), m.session.Close())
}

func TestSets_EachLauncher_AllProcessesSeeThem(t *testing.T) {
	Each(t, All(), func(t *testing.T, l *Started) {
		for i, rank := range l.RunToEnd(t, Job{Size: 3, Program: "splits"}).Ranks {
			if want := fmt.Sprintf("2 of 3, included %t, value, [\"mpi://WORLD\" \"mpi://SELF\"], added last true\n", i > 0); !strings.HasSuffix(rank.Output, want) {
				t.Errorf("rank %d: %q, want %q", i, rank.Output, want)
			}
		}
	})
}
