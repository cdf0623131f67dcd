package bench

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/mpi"
)

// haloNeighbors is the number of neighbors in a grid of two dimensions.
const haloNeighbors = 4

// checkForms checks --persistent and --isend-irecv, and completes the title.
func (o *options) checkForms() error {
	isHalo := o.name == "halo"
	switch {
	case o.isPersistent && !isHalo && !o.isCollective():
		return exit.Usagef("--persistent: %s has no loop of Start and Wait; halo, bcast and the other blocking collectives have", o.name)
	case o.isSeparate && !isHalo && o.name != "isendrecv":
		return exit.Usagef("--isend-irecv: %s has one form; halo and isendrecv have two", o.name)
	case o.isPersistent && o.isSeparate:
		return exit.Usagef("--persistent, --isend-irecv: leave one of them out")
	case o.isPersistent:
		o.osuTitle += ", persistent"
	case o.isSeparate:
		o.osuTitle += ", by Isend and Irecv"
	}
	return nil
}

// halo times the exchange of a block with each neighbor in a periodic grid of all ranks, as osu_neighbor_alltoall does.
func (r *rank) halo(ctx context.Context, size int) (row Row, err error) {
	grid, err := newHalo(ctx, r.comm)
	if err != nil {
		return Row{}, err
	}
	c := grid.Comm()
	defer func() { err = errors.Join(err, c.Close()) }()
	send, recv, err := r.buffers(haloNeighbors * size)
	if err != nil {
		return Row{}, err
	}
	do := func() error { return mpi.NeighborAlltoall(ctx, c, send, recv) }
	if r.o.isSeparate {
		if do, err = separateHalo(ctx, grid, send, recv); err != nil {
			return Row{}, err
		}
	}
	return r.timeCollective(ctx, size, exchange{runBlocking: do, initPersistent: func() (*mpi.Persistent, error) { return mpi.NeighborAlltoallInit(ctx, c, send, recv) }})
}

// newHalo makes a periodic grid of two dimensions of all ranks.
func newHalo(ctx context.Context, c *mpi.Comm) (*mpi.Cart, error) {
	dims, err := mpi.Dims(c.Size(), 0, 0)
	if err != nil {
		return nil, err
	}
	return mpi.NewCart(ctx, c, dims, []bool{true, true}, false)
}

// separateHalo returns NeighborAlltoall by Isend and Irecv. The tag of a message is the number of its block in send.
func separateHalo(ctx context.Context, grid *mpi.Cart, send, recv []byte) (func() error, error) {
	c, size := grid.Comm(), len(send)/haloNeighbors
	var neighbors [haloNeighbors]int
	for dim := range haloNeighbors / 2 {
		before, behind, err := grid.Shift(dim, 1)
		if err != nil {
			return nil, err
		}
		neighbors[2*dim], neighbors[2*dim+1] = before, behind
	}
	reqs := make([]mpi.Request, 2*haloNeighbors)
	return func() (err error) {
		for i, neighbor := range neighbors { // The neighbor sends the block for its opposite side.
			if reqs[i], err = c.Irecv(recv[i*size:(i+1)*size], neighbor, i^1); err != nil {
				return err
			}
		}
		for i, neighbor := range neighbors {
			if reqs[haloNeighbors+i], err = c.Isend(send[i*size:(i+1)*size], neighbor, i); err != nil {
				return err
			}
		}
		return mpi.WaitAll(ctx, reqs, nil)
	}, nil
}

// isendrecv times an exchange of two ranks, by Isendrecv or by Isend and Irecv.
func (r *rank) isendrecv(ctx context.Context, size int) (Row, error) {
	send, recv, err := r.buffers(size)
	if err != nil {
		return Row{}, err
	}
	c, peer := r.comm, 1-r.comm.Rank()
	each := func() error {
		q, err := c.Isendrecv(send, peer, 0, recv, peer, 0)
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return err
	}
	if r.o.isSeparate {
		reqs := make([]mpi.Request, 2)
		each = func() (err error) {
			if reqs[0], err = c.Irecv(recv, peer, 0); err != nil {
				return err
			}
			if reqs[1], err = c.Isend(send, peer, 0); err != nil {
				return err
			}
			return mpi.WaitAll(ctx, reqs, nil)
		}
	}
	l := r.o.loop(size, 10000, 100, 1000, 10)
	l.batchSize = batchOf(size)
	s, err := l.time(func(n int) error {
		for range n {
			if err := each(); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	if err != nil {
		return Row{}, err
	}
	return r.overAllRanks(ctx, s)
}
