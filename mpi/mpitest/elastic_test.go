package mpitest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// A stack is the parameters and components of a job.
type stack struct {
	name   string
	params map[string]string
	reg    *framework.Registry
}

// stacks returns the stacks over which whole changes run. Segments on the heap are for the race detector.
func stacks() []stack {
	memory := func() mtl.Component { return mtltest.NewMemory(mtltest.Options{}).Component() }
	return []stack{
		{"ob1", map[string]string{"pml": "ob1"}, components.Standard()},
		{"ob1 on the heap", map[string]string{"pml": "ob1"}, onHeap()},
		{"tcp", map[string]string{"pml": "ob1", "btl": "self,tcp"}, components.Standard()},
		{"cm", map[string]string{"pml": "cm", "mtl": "memory"}, onHeap(memory())},
		{"cm alone", map[string]string{"pml": "cm", "mtl": "memory", "pml.cm.shared_memory": "false"}, onHeap(memory())},
	}
}

// onHeap returns the standard components and more, with shared memory on the heap of this process.
func onHeap(more ...mtl.Component) *framework.Registry {
	standard, reg := components.Standard(), framework.NewRegistry()
	for _, kind := range standard.Kinds() {
		for _, c := range standard.Components(kind) {
			if name := c.Info().Name; name == "shm" && kind == framework.BTL {
				c = shm.OnHeap()
			}
			reg.Register(c)
			if node := standard.Node(kind, c.Info().Name); node != "" {
				reg.SetNode(kind, c.Info().Name, node)
			}
		}
	}
	for _, c := range more {
		reg.Register(c)
	}
	return reg
}

func (x stack) job(j mpitest.Job) mpitest.Job {
	j.Params = x.params
	j.Options = func(int) []mpi.SessionOption { return []mpi.SessionOption{mpi.WithRegistry(x.reg)} }
	return j
}

// onStacks runs a job over each stack.
func onStacks(t *testing.T, j mpitest.Job, program func(context.Context) error) {
	for _, x := range stacks() {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			x.job(j).RunSessions(t, program)
		})
	}
}

// A step is a change of the main set.
type step struct {
	op   mpi.PsetOp
	args mpi.PsetArgs
	// Of the main set afterwards.
	size int
}

// A member is a rank of a job that changes.
type member struct {
	s    *mpi.Session
	rank int    // In the job.
	main string // The main set.
	c    *mpi.Comm
}

// elastic is the program of a rank that takes part in changes. Rank 0 requests the steps, one after another.
func elastic(steps []step) func(context.Context) error {
	return func(ctx context.Context) error {
		m, err := join(ctx)
		if err != nil {
			return err
		}
		return m.run(ctx, steps)
	}
}

// run takes part in changes until the rank leaves, or the job ends. Rank 0 of the main set requests the steps.
func (m *member) run(ctx context.Context, steps []step) error {
	for i := 0; ; i++ {
		var next *step
		if m.c.Rank() == 0 && i < len(steps) {
			next = &steps[i]
		}
		if isMember, err := m.change(ctx, next); !isMember || err != nil {
			return err
		}
		if next != nil && m.c.Size() != next.size {
			return fmt.Errorf("step %d: the communicator has %d ranks, want %d", i, m.c.Size(), next.size)
		}
	}
}

// join opens a session. An added rank integrates the change that added it.
func join(ctx context.Context) (*member, error) {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return nil, err
	}
	m := &member{s: s, rank: int(mpitest.Client(ctx).Identity().Proc.Rank), main: "mpi://WORLD"}
	if err := m.enter(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return m, nil
}

func (m *member) enter(ctx context.Context) error {
	change, isAdded, err := m.s.ResourceChange(ctx, "mpi://SELF")
	switch {
	case err != nil:
		return err
	case !isAdded:
		return m.communicate(ctx)
	case !change.Included || change.Type == mpi.ChangeSub:
		return fmt.Errorf("an added rank has the change %+v", change)
	}
	got, err := m.s.Integrate(ctx, "mpi://SELF", "")
	if err != nil || got.Terminate {
		return fmt.Errorf("integrate in an added rank: %+v, %w", got, err)
	}
	m.main = got.Pset
	return m.communicate(ctx)
}

// communicate makes the communicator of the main set, in place of the earlier one, and exchanges messages on it.
func (m *member) communicate(ctx context.Context) error {
	g, err := m.s.Group(ctx, m.main)
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, g, m.main)
	if err != nil {
		return err
	}
	old := m.c
	if m.c = c; old != nil {
		if err := old.Close(); err != nil {
			return err
		}
	}
	return talk(ctx, c)
}

// talk sends a message round a ring, and combines the ranks.
func talk(ctx context.Context, c *mpi.Comm) error {
	for _, size := range []int{8, 100_000} {
		out, in := make([]byte, size), make([]byte, size)
		out[size-1] = byte(c.Rank())
		from := (c.Rank() + c.Size() - 1) % c.Size()
		if _, err := c.Sendrecv(ctx, out, (c.Rank()+1)%c.Size(), 0, in, from, 0); err != nil {
			return err
		}
		if in[size-1] != byte(from) {
			return fmt.Errorf("the message of rank %d has %d", from, in[size-1])
		}
	}
	if err := combine(ctx, c); err != nil {
		return err
	}
	return combine(ctx, c) // The second collective may use shared memory.
}

// survive waits for the death of n members, and makes a communicator of the others.
func (m *member) survive(ctx context.Context, n int) error {
	main, err := m.s.Group(ctx, m.main)
	if err != nil {
		return err
	}
	var change mpi.Change
	var dead *mpi.Group
	for dead == nil || dead.Size() < n {
		change, err = m.s.ResourceChangeAsync(m.main).Wait(ctx)
		if err != nil || change.Type != mpi.ChangeFailed || change.Included {
			return fmt.Errorf("after a death the change is %+v, %w", change, err)
		}
		if dead, err = m.s.Group(ctx, change.Delta); err != nil {
			return err
		}
	}
	c, err := mpi.CommFromGroup(ctx, main.Difference(dead), change.Delta)
	if err != nil {
		return err
	}
	old := m.c
	m.c = c
	return errors.Join(old.Close(), talk(ctx, c))
}

// share returns the name that rank 0 of the main set has.
func (m *member) share(ctx context.Context, name string) (string, error) {
	text := make([]byte, 64)
	copy(text, name)
	err := mpi.Bcast(ctx, m.c, text, 0)
	return string(bytes.TrimRight(text, "\x00")), err
}

// change takes part in the next change, which rank 0 of the main set requests; without one there the job ends. isMember is false if the rank
// has closed its session.
func (m *member) change(ctx context.Context, next *step) (isMember bool, err error) {
	delta := ""
	if next != nil {
		names, err := m.s.PsetOp(ctx, next.op, []string{m.main}, next.args)
		if err != nil {
			return false, err
		}
		delta = names[0]
	}
	name, err := m.share(ctx, delta)
	if err != nil {
		return false, err
	}
	if name == "" {
		return false, errors.Join(m.c.Close(), m.s.Close())
	}
	change, ok, err := m.s.ResourceChange(ctx, m.main)
	if err != nil || !ok || change.Delta != name {
		return false, fmt.Errorf("rank %d: the change of %q is %+v, %v, %w", m.rank, m.main, change, ok, err)
	}
	got, err := m.s.Integrate(ctx, name, "")
	if err != nil || got.Terminate != change.Included || got.Pset != change.Main {
		return false, fmt.Errorf("rank %d: integrate: %+v, %w", m.rank, got, err)
	}
	if got.Terminate {
		return false, errors.Join(m.c.Close(), m.s.Close())
	}
	before := m.main
	m.main = got.Pset
	if err := m.communicate(ctx); err != nil {
		return false, err
	}
	if next == nil {
		return true, nil
	}
	if err := m.s.FinishChange(ctx, name); err != nil {
		return false, err
	}
	if before == "mpi://WORLD" {
		return true, nil
	}
	return true, m.s.DeletePset(ctx, before)
}

func TestJob_Changes_MembersCommunicate(t *testing.T) {
	onStacks(t, mpitest.Job{Size: 1, MaxRanks: 4}, elastic([]step{
		{mpi.PsetGrow, mpi.PsetArgs{Add: 3}, 4},
		{mpi.PsetReplace, mpi.PsetArgs{Add: 2, Sub: 2}, 4},
		{mpi.PsetShrink, mpi.PsetArgs{Sub: 2}, 2},
		{mpi.PsetGrow, mpi.PsetArgs{Add: 9, Partial: true}, 4},
		{mpi.PsetShrink, mpi.PsetArgs{Sub: 3}, 1},
	}))
}

func TestJob_HundredChanges_LeaveNothing(t *testing.T) {
	one := []step{{mpi.PsetGrow, mpi.PsetArgs{Add: 1}, 2}, {mpi.PsetShrink, mpi.PsetArgs{Sub: 1}, 1}}
	onStacks(t, mpitest.Job{Size: 1, MaxRanks: 2}, elastic(slices.Repeat(one, 50)))
}
