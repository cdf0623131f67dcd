package main

import (
	"context"

	"github.com/ferrympi/ferry/mpi"
)

// halo exchanges the borders of a vector. A slab thinner than the reach
// of the stencil has more than one neighbor on a side.
type halo struct {
	m           *matrix
	comm        *mpi.Comm
	borderPeers []borderPeer
	requests    []mpi.Request
}

// borderPeer is a rank that exchanges elements with this one.
type borderPeer struct {
	rank               int
	recvRows, sendRows span // Their rows that this rank touches, and its rows that they touch.
}

func newHalo(m *matrix, comm *mpi.Comm) *halo {
	return &halo{m: m, comm: comm, borderPeers: borderPeersOf(m, comm.Rank(), comm.Size())}
}

func borderPeersOf(m *matrix, rank, ranks int) (all []borderPeer) {
	rows, reach := m.cubeSize*m.cubeSize*m.cubeSize, reachOf(m.cubeSize)
	if m.ownRows.len() == 0 {
		return nil
	}
	for r := range ranks {
		theirs := ownedBy(rows, r, ranks)
		if r == rank || theirs.len() == 0 {
			continue
		}
		n := borderPeer{
			rank:     r,
			recvRows: theirs.intersect(m.neededRows),
			sendRows: m.ownRows.intersect(span{theirs.first - reach, theirs.end + reach}),
		}
		if n.recvRows.len() > 0 {
			all = append(all, n)
		}
	}
	return all
}

// start begins the exchange of x's borders.
func (h *halo) start(x []float64) error {
	h.requests = h.requests[:0]
	for _, n := range h.borderPeers {
		r, err := mpi.Irecv(h.comm, h.m.part(x, n.recvRows), n.rank, 0)
		if err != nil {
			return err
		}
		h.requests = append(h.requests, r)
	}
	for _, n := range h.borderPeers {
		r, err := mpi.Isend(h.comm, h.m.part(x, n.sendRows), n.rank, 0)
		if err != nil {
			return err
		}
		h.requests = append(h.requests, r)
	}
	return nil
}

// wait returns when the borders are here.
func (h *halo) wait(ctx context.Context) error { return mpi.WaitAll(ctx, h.requests, nil) }
