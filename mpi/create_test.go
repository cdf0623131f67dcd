package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// meets checks that a new communicator joins exactly these ranks of its parent.
func meets(ctx context.Context, c *mpi.Comm, me int, want ...int64) error {
	all := make([]int64, len(want))
	if c.Size() != len(want) {
		return fmt.Errorf("%d members, want %v", c.Size(), want)
	}
	all[c.Rank()] = int64(me)
	if err := mpi.Allreduce(ctx, c, nil, all, mpi.Sum[int64]()); err != nil {
		return err
	}
	return must(slices.Equal(all, want), "members %v, want %v", all, want)
}

func TestCreate_DisjointGroups_EachGetsComm(t *testing.T) {
	policies(t, 5, inWorld(create), "agree", "lazy")
}

func create(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	me := c.Rank()
	pick := func(ranks ...int) *mpi.Group {
		g, err := c.Group().Incl(ranks...)
		if err != nil {
			panic(err)
		}
		return g
	}
	// One group in another order. Members outside of it take part.
	d, err := c.Create(ctx, pick(4, 0, 2))
	if me%2 == 1 {
		if err := wants("create without the caller", err, mpi.ErrNoComm); err != nil {
			return err
		}
	} else if err := errors.Join(err, meets(ctx, d, me, 4, 0, 2)); err != nil {
		return err
	} else if err := d.Close(); err != nil {
		return err
	}
	// Groups without a common process, and an empty one.
	group := []*mpi.Group{pick(3, 0), pick(1, 2), pick(1, 2), pick(3, 0), nil}[me]
	d, err = c.Create(ctx, group)
	switch me {
	case 4:
		err = wants("create with no group", err, mpi.ErrNoComm)
	case 0, 3:
		err = errors.Join(err, meets(ctx, d, me, 3, 0), d.Close())
	default:
		err = errors.Join(err, meets(ctx, d, me, 1, 2), d.Close())
	}
	if err != nil {
		return err
	}
	// A group with other processes is an error of that caller alone.
	sub, err := c.Create(ctx, pick(0, 1))
	if me < 2 {
		_, bad := sub.Create(ctx, c.Group())
		_, badToo := sub.CreateGroup(ctx, c.Group(), 0)
		err = errors.Join(err, wants("no subset", bad, mpi.ErrGroup), wants("no subset", badToo, mpi.ErrGroup), mpi.Barrier(ctx, sub), sub.Close())
	} else {
		err = wants("create without the caller", err, mpi.ErrNoComm)
	}
	if err != nil {
		return err
	}
	// All processes are on this node.
	shared, err := c.SplitShared(ctx, -me)
	if err != nil {
		return err
	}
	if err := errors.Join(meets(ctx, shared, me, 4, 3, 2, 1, 0), shared.Close(), mpi.Barrier(ctx, c)); err != nil {
		return err
	}
	// Members that pass different groups hear of it, and don't hang.
	mixed := pick(0, 1, 2, 3, 4)
	if me == 2 {
		mixed = pick(4, 3, 2, 1, 0)
	}
	d, err = c.Create(ctx, mixed)
	if err == nil {
		return fmt.Errorf("create with different groups: %v", d.Group().Members())
	}
	// Or in a member that was notified before.
	return must(errors.Is(err, mpi.ErrGroup) || errors.Is(err, mpi.ErrBroken) && strings.Contains(err.Error(), "different groups"),
		"create with different groups: %v", err)
}

func TestCreateGroup_NonMembers_DoNotCall(t *testing.T) { ranks(t, 4, inWorld(createGroup)) }

func createGroup(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	me := c.Rank()
	_, tagErr := c.CreateGroup(ctx, c.Group(), -1)
	if err := wants("a wrong tag", tagErr, mpi.ErrTag); err != nil {
		return err
	}
	g, err := c.Group().Incl(3, 1, 2)
	if err != nil {
		return err
	}
	if me == 0 {
		// Rank 0 knows nothing of it: its counter of dups stays behind the others'.
		_, err := c.CreateGroup(ctx, g, 7)
		if err := wants("create group without the caller", err, mpi.ErrNoComm); err != nil {
			return err
		}
	} else {
		ids := map[mpi.CommID]bool{}
		for i := range 20 { // the same tag, back to back
			d, err := c.CreateGroup(ctx, g, 7)
			if err != nil {
				return err
			}
			if ids[d.ID()] {
				return fmt.Errorf("round %d: id %v again", i, d.ID())
			}
			ids[d.ID()] = true
			sub, err := d.Dup(ctx)
			if err != nil {
				return err
			}
			if ids[sub.ID()] {
				return fmt.Errorf("round %d: the id of a dup was another's", i)
			}
			ids[sub.ID()] = true
			if err := errors.Join(meets(ctx, d, me, 3, 1, 2), meets(ctx, sub, me, 3, 1, 2), sub.Close(), d.Close()); err != nil {
				return err
			}
		}
	}
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(meets(ctx, d, me, 0, 1, 2, 3), d.Close()); err != nil {
		return err
	}
	// Overlapping groups at the same time, distinguished by tags, beside a collective.
	errs := make([]error, c.Size())
	var wg sync.WaitGroup
	for peer := range c.Size() {
		if peer == me {
			continue
		}
		wg.Go(func() {
			lo, hi := min(me, peer), max(me, peer)
			pair, err := c.Group().Incl(hi, lo)
			for i := 0; i < 10 && err == nil; i++ {
				var d *mpi.Comm
				if d, err = c.CreateGroup(ctx, pair, lo*10+hi); err == nil {
					err = errors.Join(meets(ctx, d, me, int64(hi), int64(lo)), d.Close())
				}
			}
			errs[peer] = err
		})
	}
	for range 20 {
		errs[me] = errors.Join(errs[me], mpi.Barrier(ctx, c))
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestCreateGroup_TagsMixedUp_ReturnsError(t *testing.T) { ranks(t, 3, inWorld(mixedTags)) }

// mixedTags has rank 1 mix up its tags. The others get their communicator, or
// hear of it before they do.
func mixedTags(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	all := c.Group()
	pair, err := c.Group().Incl(0, 1)
	if err != nil {
		return err
	}
	if c.Rank() == 1 {
		_, err = c.CreateGroup(ctx, pair, 1)
		_, after := c.CreateGroup(ctx, pair, 1)
		return errors.Join(wants("another group under the tag", err, mpi.ErrGroup), wants("after it", after, mpi.ErrBroken))
	}
	d, err := c.CreateGroup(ctx, all, 1)
	if err == nil {
		return d.Close()
	}
	if !strings.Contains(err.Error(), "rank 1") {
		return fmt.Errorf("rank 1 mixed up its tags, and is not named: %w", err)
	}
	return wants("a member that mixed up its tags", err, mpi.ErrBroken)
}

func TestIdup_Collectives_Overlap(t *testing.T) { ranks(t, 3, inWorld(idup)) }

func idup(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	key := mpi.NewKey(mpi.KeyHooks[int]{Copy: func(v int) (int, bool) { return v + 1, true }})
	// Down to where a base is exhausted, so that members have to meet.
	chain := []*mpi.Comm{c}
	for range 9 {
		last := chain[len(chain)-1]
		if err := mpi.SetAttr(last, key, 1); err != nil {
			return err
		}
		r1, err := last.Idup()
		if err != nil {
			return err
		}
		r2, err := last.Idup()
		if err != nil {
			return err
		}
		mpi.SetAttr(last, key, 5) // too late for both
		if err := mpi.Barrier(ctx, last); err != nil {
			return err
		}
		d, err := last.Dup(ctx)
		if err != nil {
			return err
		}
		second, err := r2.Wait(ctx) // the later one first
		if err != nil {
			return err
		}
		var first *mpi.Comm
		for done := false; !done; {
			if first, done, err = r1.Test(); err != nil {
				return err
			}
		}
		_, again := r1.Wait(ctx)
		_, _, againTest := r2.Test()
		if err := errors.Join(wants("a second wait", again, mpi.ErrClosed), wants("a second test", againTest, mpi.ErrClosed)); err != nil {
			return err
		}
		for i, x := range []*mpi.Comm{first, second, d} {
			want := 2
			if x == d {
				want = 6
			}
			if v, ok := mpi.Attr(x, key); !ok || v != want {
				return fmt.Errorf("duplicate %d has attribute %d, %v", i, v, ok)
			}
			if x.Compare(last) != mpi.Congruent {
				return fmt.Errorf("duplicate %d: %v", i, x.Compare(last))
			}
			if err := meets(ctx, x, c.Rank(), 0, 1, 2); err != nil {
				return err
			}
		}
		if err := errors.Join(second.Close(), d.Close()); err != nil {
			return err
		}
		chain = append(chain, first)
	}
	for _, x := range chain[1:] {
		if err := x.Close(); err != nil {
			return err
		}
	}
	var zero mpi.CommRequest
	_, zeroErr := zero.Wait(ctx)
	pending, err := c.Idup()
	if err != nil {
		return err
	}
	if err := errors.Join(wants("the zero request", zeroErr, mpi.ErrClosed), wants("close with an idup that was not waited for", s.Close(), mpi.ErrPending)); err != nil {
		return err
	}
	d, err := pending.Wait(nil)
	if err != nil {
		return err
	}
	return d.Close()
}
