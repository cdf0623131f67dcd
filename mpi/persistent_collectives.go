package mpi

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
)

// BarrierInit initializes a persistent Barrier (MPI_Barrier_init).
//
// The persistent forms of collectives (MPI-4.1 section 6.13) take the arguments of the blocking ones. The initialization checks them, and is
// collective. All members initialize in the same order as the other collectives of the communicator. The end of its context breaks the
// communicator's collectives like that of a blocking collective. After that, each member starts its operations in any order, also several at a time.
// The n-th starts of an operation in all members belong together. Buffers belong to the library while the operation is active. Counts and
// displacements may be reused at once. The operation has a separate communication context, like a duplicate, so that its failure breaks no other
// collective. Free releases the context, and so does Close of the communicator. Revoke of the communicator also revokes it.
func BarrierInit(ctx context.Context, c *Comm) (*Persistent, error) {
	return c.persistent(ctx, &run.Call{Op: coll.Barrier}, nil)
}

// BcastInit initializes a persistent Bcast (MPI_Bcast_init).
func BcastInit[T any](ctx context.Context, c *Comm, buf []T, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, bcast(x, c, buf, root))
}

// ReduceInit initializes a persistent Reduce (MPI_Reduce_init).
func ReduceInit[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T], root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, reduce(x, c, send, recv, op, root))
}

// AllreduceInit initializes a persistent Allreduce (MPI_Allreduce_init).
func AllreduceInit[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, reduction(x, coll.Allreduce, send, recv, op, true))
}

// ScanInit initializes a persistent Scan (MPI_Scan_init).
func ScanInit[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, reduction(x, coll.Scan, send, recv, op, true))
}

// ExscanInit initializes a persistent Exscan (MPI_Exscan_init).
func ExscanInit[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, reduction(x, coll.Exscan, send, recv, op, true))
}

// ReduceScatterBlockInit initializes a persistent ReduceScatterBlock (MPI_Reduce_scatter_block_init).
func ReduceScatterBlockInit[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, reduceScatter(x, c, coll.ReduceScatterBlock, send, recv, nil, op))
}

// ReduceScatterInit initializes a persistent ReduceScatter (MPI_Reduce_scatter_init).
func ReduceScatterInit[T any](ctx context.Context, c *Comm, send, recv []T, counts []int, op Op[T]) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, reduceScatter(x, c, coll.ReduceScatter, send, recv, counts, op))
}

// GatherInit initializes a persistent Gather (MPI_Gather_init).
func GatherInit[T any](ctx context.Context, c *Comm, send, recv []T, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, gather(x, c, send, recv, root))
}

// GathervInit initializes a persistent Gatherv (MPI_Gatherv_init).
func GathervInit[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, gatherv(x, c, send, recv, counts, displs, root))
}

// ScatterInit initializes a persistent Scatter (MPI_Scatter_init).
func ScatterInit[T any](ctx context.Context, c *Comm, send, recv []T, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, scatter(x, c, send, recv, root))
}

// ScattervInit initializes a persistent Scatterv (MPI_Scatterv_init).
func ScattervInit[T any](ctx context.Context, c *Comm, send []T, counts, displs []int, recv []T, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, scatterv(x, c, send, counts, displs, recv, root))
}

// AllgatherInit initializes a persistent Allgather (MPI_Allgather_init).
func AllgatherInit[T any](ctx context.Context, c *Comm, send, recv []T) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, allgather(x, c, send, recv))
}

// AllgathervInit initializes a persistent Allgatherv (MPI_Allgatherv_init).
func AllgathervInit[T any](ctx context.Context, c *Comm, send, recv []T, counts, displs []int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, allgatherv(x, c, send, recv, counts, displs))
}

// AlltoallInit initializes a persistent Alltoall (MPI_Alltoall_init).
func AlltoallInit[T any](ctx context.Context, c *Comm, send, recv []T) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, alltoall(x, c, send, recv))
}

// AlltoallvInit initializes a persistent Alltoallv (MPI_Alltoallv_init).
func AlltoallvInit[T any](ctx context.Context, c *Comm, send []T, sendCounts, sendDispls []int, recv []T, recvCounts, recvDispls []int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, alltoallv(x, c, send, sendCounts, sendDispls, recv, recvCounts, recvDispls))
}

// persistent returns a persistent operation for a call, unless its arguments are invalid.
func (c *Comm) persistent(ctx context.Context, x *run.Call, wrong error) (*Persistent, error) {
	if wrong != nil {
		return nil, wrong
	}
	d, err := c.persistentContext(ctx, x)
	if err != nil {
		return nil, err
	}
	p := &Persistent{freeResources: func() error { return c.freeContext(d) }}
	kept := d.rankState.NewKept()
	x.SendBlocks, x.RecvBlocks = x.SendBlocks.Clone(), x.RecvBlocks.Clone()
	keepLayouts(x)
	if x.NeighborChoice == nil { // Operations among neighbors have no instance.
		err = d.collective.Do(ctx, x.Op.String()+"_init", 0, func() error {
			err := d.collective.OpenEarly(ctx)
			if err == nil {
				p.earlyOp = d.collective.NewEarly(kept, x)
			}
			return err
		})
	}
	if err != nil {
		_ = c.freeContext(d)
		return nil, cmp.Or(c.terminalError(), err)
	}
	p.startRequest = func() (Request, error) { return d.startIn(kept, x) }
	if p.earlyOp != nil {
		d.collective.SetPromote(p.promote)
	}
	return p, nil
}

// persistentContext creates the communicator of a persistent operation. Its id is derived like that of a duplicate, so that
// operations match by the order of their initializations. All members have called it before a message goes to the
// communicator, since a member that never does is waited for where Revoke of c ends the wait.
func (c *Comm) persistentContext(ctx context.Context, x *run.Call) (*Comm, error) {
	var d *Comm
	err := c.collective.Do(ctx, x.Op.String()+"_init", 0, func() (err error) {
		if err := c.collective.CompareInit(ctx, x); err != nil {
			return err
		}
		if err := c.collective.Inline(ctx, &run.Call{Op: coll.Barrier}); err != nil {
			return err
		}
		d, err = c.dup(ctx, c.takeLastDup())
		return err
	})
	if err != nil {
		return nil, err
	}
	name := c.Name()
	d.mu.Lock()
	d.name, d.usedBy = name, fmt.Sprintf("persistent %v of communicator %s", x.Op, c.label())
	d.mu.Unlock()
	e := c.session.process
	e.mu.Lock()
	d.contextOf = c.spec.ID
	e.mu.Unlock()
	c.mu.Lock()
	if c.contexts == nil {
		c.contexts = map[*Comm]struct{}{}
	}
	c.contexts[d] = struct{}{}
	c.mu.Unlock()
	if state := c.stateBits.Load(); state&stateClosed != 0 { // Closed meanwhile.
		_ = d.Close()
	} else if state != 0 {
		d.terminate(state&^stateReported, c.terminalError())
	}
	return d, nil
}

// freeContext closes the communicator of a persistent operation. An operation in progress completes.
func (c *Comm) freeContext(d *Comm) error {
	c.mu.Lock()
	_, isOpen := c.contexts[d]
	delete(c.contexts, d)
	c.mu.Unlock()
	if !isOpen { // Close of c has closed it.
		return nil
	}
	return d.Close()
}
