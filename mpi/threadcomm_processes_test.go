package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// Goroutine ranks of several processes.

// counts are the numbers of goroutine ranks by process.
var counts = []int{1, 2, 5}

// inProcesses runs f in the goroutine ranks of three processes.
func inProcesses(t *testing.T, job mpitest.Job, f func(ctx context.Context, c *mpi.Comm) error) {
	t.Helper()
	t.Parallel()
	job.Size = len(counts)
	job.RunSessions(t, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		tc, err := mpi.NewThreadComm(ctx, world, counts[world.Rank()])
		if err != nil {
			return err
		}
		for range 2 { // the second activation meets no message of the first
			if err := tc.Run(ctx, f); err != nil {
				return err
			}
		}
		return errors.Join(mpi.Barrier(ctx, world), tc.Close())
	}))
}

// overMTL returns a job over PML cm and an MTL in memory.
func overMTL(o mtltest.Options, sharedMemory string) mpitest.Job {
	reg := withMTL(mtltest.NewMemory(o).Component())
	return mpitest.Job{
		Params:  map[string]string{"pml": "cm", "pml.cm.shared_memory": sharedMemory},
		Options: func(int) []mpi.SessionOption { return []mpi.SessionOption{mpi.WithRegistry(reg)} },
	}
}

// processOf returns the process of a goroutine rank.
func processOf(rank int) (process int) {
	for process = 0; rank >= counts[process]; process++ {
		rank -= counts[process]
	}
	return process
}

func TestThreadComm_Processes_ExchangeByAllMeans(t *testing.T) {
	for name, job := range map[string]mpitest.Job{
		"shm":                       {Params: map[string]string{"btl": "self,shm"}},
		"tcp":                       {Params: map[string]string{"btl": "self,tcp"}},
		"cm and ob1":                overMTL(mtltest.Options{}, "true"),
		"cm":                        overMTL(mtltest.Options{}, "false"),
		"cm that matches processes": overMTL(mtltest.Options{ByProcess: true, EndpointBits: 3}, "false"),
	} {
		t.Run(name, func(t *testing.T) { inProcesses(t, job, exchangeByAllMeans) })
	}
}

// The error has the number of ranks that fit.
func TestNewThreadComm_TooFewEndpointBits_IsUnsupportedInAllMembers(t *testing.T) {
	t.Parallel()
	job := overMTL(mtltest.Options{ByProcess: true, EndpointBits: 2}, "false")
	job.Size = len(counts)
	job.RunSessions(t, inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		_, err := mpi.NewThreadComm(ctx, world, counts[world.Rank()])
		if !errors.Is(err, mpi.ErrUnsupported) || !strings.Contains(err.Error(), "ranks 0 to 3 of a process") {
			return fmt.Errorf("5 ranks of a process: %v", err)
		}
		tc, err := mpi.NewThreadComm(ctx, world, 4)
		if err != nil {
			return err
		}
		return errors.Join(mpi.Barrier(ctx, world), tc.Close())
	}))
}

func exchangeByAllMeans(ctx context.Context, c *mpi.Comm) error {
	if c.Size() != 8 || int(c.Group().Members()[c.Rank()].Rank) != processOf(c.Rank()) {
		return fmt.Errorf("rank %d of %d is in %v", c.Rank(), c.Size(), c.Group().Members())
	}
	for _, size := range []int{1, 5 << 10, 1 << 20} {
		all := make([]byte, c.Size()*size)
		mine := slices.Repeat([]byte{byte(c.Rank())}, size)
		if err := mpi.Allgather(ctx, c, mine, all); err != nil {
			return err
		}
		for r := range c.Size() {
			if all[r*size] != byte(r) || all[(r+1)*size-1] != byte(r) {
				return fmt.Errorf("allgather of %d bytes: block %d is %d", size, r, all[r*size])
			}
		}
		if err := everyoneToZero(ctx, c, mine); err != nil {
			return err
		}
	}
	if err := concatenate(ctx, c); err != nil {
		return err
	}
	half, err := c.Split(ctx, c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	sum := []int{c.Rank()}
	if err := mpi.Allreduce(ctx, half, nil, sum, mpi.Sum[int]()); err != nil || sum[0] != 12+c.Rank()%2*4 {
		return fmt.Errorf("rank %d has the sum %v: %v", c.Rank(), sum, err)
	}
	node, err := c.SplitShared(ctx, 0)
	if err != nil || node.Size() != c.Size() {
		return fmt.Errorf("split shared: %v", err)
	}
	g, err := c.Group().Incl(7, 0, 2)
	if err != nil {
		return err
	}
	if g.Rank() != mpi.Undefined {
		d, err := c.CreateGroup(ctx, g, 5)
		if err != nil {
			return err
		}
		if err := errors.Join(mpi.Barrier(ctx, d), d.Close()); err != nil {
			return err
		}
	}
	return errors.Join(mpi.Barrier(ctx, c), half.Close(), node.Close())
}

// concatenate reduces in the order of ranks to each root, blocking and not: operands are digits of a number.
func concatenate(ctx context.Context, c *mpi.Comm) error {
	type digits struct{ value, power int64 }
	op := mpi.NewOp(func(inout, in []digits) {
		for i := range inout {
			inout[i] = digits{in[i].value*inout[i].power + inout[i].value, in[i].power * inout[i].power}
		}
	}, false)
	for root := range c.Size() {
		mine, sum := []digits{{int64(c.Rank()), 10}, {int64(c.Rank()), 10}}, make([]digits, 2)
		q, err := mpi.Ireduce(c, mine, sum, op, root)
		if err == nil {
			_, err = q.Wait(ctx)
		}
		if err == nil && c.Rank() == root && sum[1].value != 1234567 {
			err = fmt.Errorf("ireduce: %v", sum)
		}
		clear(sum)
		if err = errors.Join(err, mpi.Reduce(ctx, c, mine, sum, op, root)); err == nil && c.Rank() == root && sum[0].value != 1234567 {
			err = fmt.Errorf("reduce: %v", sum)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// everyoneToZero sends synchronously from all ranks to rank 0, which receives by probes from any source.
func everyoneToZero(ctx context.Context, c *mpi.Comm, mine []byte) error {
	if c.Rank() != 0 {
		return c.Ssend(ctx, mine, 0, c.Rank())
	}
	seen := make([]bool, c.Size())
	for range c.Size() - 1 {
		m, st, err := c.Mprobe(ctx, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		got := make([]byte, st.Bytes)
		if _, err := m.Recv(ctx, got); err != nil || st.Tag != st.Source || seen[st.Source] || len(got) != len(mine) || got[len(got)-1] != byte(st.Source) {
			return fmt.Errorf("%+v, %v", st, err)
		}
		seen[st.Source] = true
	}
	return nil
}

func TestThreadComm_RankOfAnotherProcessFails_AllEnd(t *testing.T) {
	ranks(t, len(counts), inWorld(func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		tc, err := mpi.NewThreadComm(ctx, world, counts[world.Rank()])
		if err != nil {
			return err
		}
		err = tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) error {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			if c.Rank() == 2 {
				return errMine
			}
			if c.Rank()%2 == 0 {
				_, err = d.Recv(ctx, nil, (c.Rank()+1)%c.Size(), 0)
			} else {
				err = mpi.Barrier(ctx, c)
			}
			return err
		})
		if world.Rank() == processOf(2) {
			if err != errMine {
				return fmt.Errorf("Run of the failed rank's process: %v", err)
			}
		} else if !errors.Is(err, mpi.ErrBroken) || !strings.Contains(err.Error(), "rank 2 of the thread communicator has failed: "+errMine.Error()) {
			return fmt.Errorf("Run of process %d: %v", world.Rank(), err)
		}
		again := tc.Run(ctx, func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) })
		return errors.Join(again, mpi.Barrier(ctx, world), tc.Close())
	}))
}
