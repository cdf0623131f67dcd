package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ferrympi/ferry/mpi"
)

// exchangeUntilChange exchanges messages in the team until a change ends all of them. The first member requests a
// change after some rounds. ends is set if all members have agreed on the end of the job.
func (e *elasticRank) exchangeUntilChange(ctx context.Context) (ends bool, err error) {
	news := e.nextChange()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-news.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	defer e.closeComm()
	if e.comm == nil {
		group, err := e.s.Group(ctx, e.team)
		if err != nil {
			return false, err
		}
		if e.comm, err = mpi.CommFromGroup(ctx, group, e.team); err != nil {
			return false, fmt.Errorf("communicator: %w", err)
		}
		e.rounds = 0
	}
	rng := e.newRand()
	for rounds := 1 + rng.IntN(4); ; rounds-- {
		e.rounds++
		if ends, err := e.sumAndRing(ctx); ends || err != nil {
			return ends, err
		}
		if e.comm.Rank() > 0 || rounds > 0 {
			continue
		}
		op, args := e.randomChange(rng.IntN(4))
		_ = e.request(ctx, op, args) // It may be refused.
		rounds = 3
	}
}

// randomChange returns a change of the team.
func (e *elasticRank) randomChange(kind int) (mpi.PsetOp, mpi.PsetArgs) {
	size, rng := e.comm.Size(), e.newRand()
	switch {
	case size <= 2, kind == 0 && size < maxTeamSize:
		return mpi.PsetGrow, mpi.PsetArgs{Add: 1 + rng.IntN(maxTeamSize-size), Partial: rng.IntN(2) == 0}
	case kind == 1: // Never in a team of two.
		return mpi.PsetReplace, mpi.PsetArgs{Sub: 1 + rng.IntN(size-1), Add: 1 + rng.IntN(2)}
	}
	return mpi.PsetShrink, mpi.PsetArgs{Sub: 1 + rng.IntN(size-2)} // Two remain, so that a death leaves one.
}

// recordWrong records a message with wrong contents, which fails the test.
func (e *elasticRank) recordWrong(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return errors.Join(err, os.WriteFile(filepath.Join(e.dir, fmt.Sprintf("wrong-%d", e.rank)), []byte(err.Error()), 0o600))
}

// sumAndRing is a sum of all members and a message around the ring.
func (e *elasticRank) sumAndRing(ctx context.Context) (ends bool, err error) {
	c := e.comm
	send, recv := []int64{int64(c.Rank()), 0}, make([]int64, 2)
	if e.isStopped() {
		send[1] = 1
	}
	if err := mpi.Allreduce(ctx, c, send, recv, mpi.Sum[int64]()); err != nil {
		return false, fmt.Errorf("allreduce: %w", err)
	}
	if n := int64(c.Size()); recv[0] != n*(n-1)/2 {
		return false, e.recordWrong("the sum of %d ranks is %d", n, recv[0])
	}
	length := []int{1, 500, 20_000}[e.rounds%3]
	out, in := make([]int64, length), make([]int64, length)
	for i := range out {
		out[i] = int64(c.Rank() + i)
	}
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if _, err := mpi.Sendrecv(ctx, c, out, right, 1, in, left, 1); err != nil {
		return false, fmt.Errorf("ring: %w", err)
	}
	for i := range in {
		if in[i] != int64(left+i) {
			return false, e.recordWrong("element %d from %d is %d", i, left, in[i])
		}
	}
	return recv[1] > 0, nil
}
