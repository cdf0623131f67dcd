package soak

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// messages exchanges messages in a ring, from a named source and from any.
func (s *survivor) messages(_ *mpi.Session, rng *rand.Rand) error {
	c := s.c
	n, me := c.Size(), c.Rank()
	for i := range 5 {
		size, shift, source := [...]int{8, 5000, 300_000}[rng.IntN(3)], rng.IntN(n), mpi.AnySource
		to, from := (me+shift)%n, (me+n-shift)%n
		if rng.IntN(2) == 0 {
			source = from
		}
		in, isSync := make([]byte, size), rng.IntN(2) == 0
		r, err := c.Irecv(in, source, i)
		if err != nil {
			return err
		}
		send := c.Isend
		if isSync {
			send = c.Issend
		}
		q, err := send(survivePattern(size, me, i), to, i)
		if err == nil {
			err = mpi.WaitAll(s.ctx, []mpi.Request{r, q}, nil)
		}
		if err != nil {
			// A receive from any source stays active.
			return errors.Join(err, s.withdraw(r))
		}
		if !bytes.Equal(in, survivePattern(size, from, i)) {
			return wrongValue("message %d from rank %d", i, from)
		}
	}
	return nil
}

// withdraw ends an active receive.
func (s *survivor) withdraw(r mpi.Request) error {
	if err := r.Cancel(); err != nil && !errors.Is(err, mpi.ErrClosed) {
		return err
	}
	if _, err := r.Wait(s.ctx); err != nil && !isLoss(err) && !errors.Is(err, mpi.ErrClosed) {
		return err
	}
	return nil
}

// collectives combines and distributes values.
func (s *survivor) collectives(_ *mpi.Session, rng *rand.Rand) error {
	for range 4 {
		if err := s.collective(s.c, rng); err != nil {
			return err
		}
	}
	return nil
}

func (s *survivor) collective(c *mpi.Comm, rng *rand.Rand) error {
	n, me, length, root := c.Size(), c.Rank(), [...]int{1, 100, 5000, 100_000}[rng.IntN(4)], rng.IntN(c.Size())
	one := slices.Repeat([]int64{int64(me + 1)}, length)
	sum := int64(n * (n + 1) / 2)
	kind := rng.IntN(5)
	switch kind {
	case 0:
		return mpi.Barrier(s.ctx, c)
	case 1:
		if err := mpi.Bcast(s.ctx, c, one, root); err != nil {
			return err
		}
		sum = int64(root + 1)
	case 2:
		if err := mpi.Allreduce(s.ctx, c, nil, one, mpi.Sum[int64]()); err != nil {
			return err
		}
	case 3:
		r, err := mpi.Iallreduce(c, nil, one, mpi.Sum[int64]())
		if err == nil {
			_, err = r.Wait(s.ctx)
		}
		if err != nil {
			return err
		}
	case 4:
		out := make([]int64, n)
		for i := range out {
			out[i] = int64(me*n + i)
		}
		in := make([]int64, n)
		if err := mpi.Alltoall(s.ctx, c, out, in); err != nil {
			return err
		}
		for i, x := range in {
			if x != int64(i*n+me) {
				return wrongValue("alltoall: %d from rank %d", x, i)
			}
		}
		return nil
	}
	for _, x := range []int64{one[0], one[length-1]} {
		if x != sum {
			return wrongValue("collective %d: %d, want %d", kind, x, sum)
		}
	}
	return nil
}

// create creates a communicator of all members. Either all members have it or none.
func (s *survivor) create(session *mpi.Session, rng *rand.Rand) (*mpi.Comm, error) {
	c := s.c
	var d *mpi.Comm
	var err error
	kind := rng.IntN(5)
	switch kind {
	case 0:
		d, err = c.Dup(s.ctx)
	case 1:
		d, err = c.Split(s.ctx, 0, c.Rank())
	case 2:
		d, err = c.CreateGroup(s.ctx, c.Group(), 1)
	case 3:
		d, err = mpi.CommFromGroup(s.ctx, c.Group(), fmt.Sprintf("survive.%v", c.ID()))
	case 4:
		var r *mpi.CommRequest
		if r, err = c.Idup(); err == nil {
			d, err = r.Wait(s.ctx)
		}
	}
	if err != nil && !isLoss(err) {
		return nil, fmt.Errorf("creation %d: %w", kind, err)
	}
	if err != nil {
		if err := c.Revoke(); err != nil {
			return nil, err
		}
	}
	if d != nil {
		s.stepComms = append(s.stepComms, d)
	}
	all, lost, failed := s.agree(c, err == nil)
	switch {
	case failed != nil:
		return nil, failed
	case !all || lost:
		return nil, errors.Join(err, mpi.ErrProcFailed)
	}
	return d, nil
}

// creation creates a communicator and uses it.
func (s *survivor) creation(session *mpi.Session, rng *rand.Rand) error {
	d, err := s.create(session, rng)
	if err != nil {
		return err
	}
	for range 2 {
		if err == nil {
			err = s.collective(d, rng)
		}
	}
	if err != nil { // Others may wait for this rank.
		err = errors.Join(err, d.Revoke())
	}
	return err
}

// revokes creates a communicator that one member revokes while the others wait for messages. They
// shrink it.
func (s *survivor) revokes(session *mpi.Session, rng *rand.Rand) error {
	d, err := s.create(session, rng)
	if err != nil {
		return err
	}
	if d.Rank() == rng.IntN(d.Size()) {
		err = d.Revoke()
	} else {
		_, err = d.Recv(s.ctx, nil, (d.Rank()+1)%d.Size(), 0)
		if err == nil || !isLoss(err) {
			return fmt.Errorf("receive without a message on a revoked communicator: %w", err)
		}
		err = d.Revoke()
	}
	if err != nil {
		return err
	}
	return s.shrinkAndUse(d, rng)
}

// shrinks shrinks a communicator that is not revoked.
func (s *survivor) shrinks(session *mpi.Session, rng *rand.Rand) error {
	d, err := s.create(session, rng)
	if err != nil {
		return err
	}
	return s.shrinkAndUse(d, rng)
}

func (s *survivor) shrinkAndUse(d *mpi.Comm, rng *rand.Rand) error {
	next, err := s.shrink(d)
	if err != nil {
		return err
	}
	s.stepComms = append(s.stepComms, next)
	if err = s.collective(next, rng); err != nil {
		err = errors.Join(err, next.Revoke())
	}
	return err
}

// agrees agrees on flags. The outcome is between that of the surviving members and that of all.
func (s *survivor) agrees(_ *mpi.Session, rng *rand.Rand) error {
	for range 3 {
		flags := make([]uint64, surviveRanks)
		for i := range flags {
			flags[i] = rng.Uint64() | rng.Uint64() | rng.Uint64()
		}
		all, certain := ^uint64(0), ^uint64(0)
		for _, rank := range s.members(s.c) {
			all &= flags[rank]
			if _, dies := s.plan.deathOf(rank); !dies {
				certain &= flags[rank]
			}
		}
		got, lost, err := s.agreeOn(s.c, flags[s.me])
		switch {
		case err != nil:
			return err
		case got&^certain != 0 || all&^got != 0 || !lost && got != all:
			return wrongValue("agree: %#x, want %#x, or %#x without the dead", got, all, certain)
		}
	}
	return nil
}
