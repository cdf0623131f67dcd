package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// allgather returns the number of every member, in all members.
func allgather(ctx context.Context, c *mpi.Comm, mine int64) ([]int64, error) {
	all := make([]int64, c.Size())
	all[c.Rank()] = mine
	return all, mpi.Allreduce(ctx, c, nil, all, mpi.Sum[int64]())
}

func TestCreations_OverlapConcurrently_AllWork(t *testing.T) {
	policies(t, 4, overlap, "auto", "gather", "lazy")
}

// overlap creates communicators of each pair of ranks, concurrently with all other pairs and with the same tag.
func overlap(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	me := world.Rank()
	errs := make([]error, world.Size())
	var wg sync.WaitGroup
	for peer := range world.Size() {
		if peer == me {
			continue
		}
		wg.Go(func() { errs[peer] = pairUp(ctx, world, peer, me) })
	}
	wg.Wait()
	return errors.Join(append(errs, s.Close())...)
}

func pairUp(ctx context.Context, world *mpi.Group, peer, me int) error {
	pair, err := world.Incl(min(peer, me), max(peer, me))
	if err != nil {
		return err
	}
	for range 10 {
		c, err := mpi.CommFromGroup(ctx, pair, "pair")
		if err != nil {
			return err
		}
		all, err := allgather(ctx, c, int64(me))
		if err != nil || !slices.Equal(all, []int64{int64(min(peer, me)), int64(max(peer, me))}) {
			return fmt.Errorf("pair with %d: %v, %w", peer, all, err)
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestDup_ManyTimes_IdsAreReused(t *testing.T) { ranks(t, 2, inWorld(manyDups)) }

func manyDups(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	buf := make([]byte, 8)
	for i := range 3000 {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if i%10 == 0 {
			if _, err := d.Sendrecv(ctx, []byte{byte(i)}, peer, 0, buf, peer, 0); err != nil || buf[0] != byte(i) {
				return fmt.Errorf("round %d: %v, %w", i, buf[0], err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestDup_BaseUsedUp_ObtainsNewBase(t *testing.T) { ranks(t, 2, exhausted) }

// exhausted creates a chain of duplicates that is deeper than the levels of one base.
func exhausted(ctx context.Context) error {
	return inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		ids := map[mpi.CommID]bool{c.ID(): true}
		chain := []*mpi.Comm{c}
		for i := range 12 {
			last := chain[len(chain)-1]
			d, err := last.Dup(ctx)
			if err != nil {
				return err
			}
			sub, err := last.Split(ctx, i%2, 0)
			if err != nil {
				return err
			}
			if ids[d.ID()] || ids[sub.ID()] {
				return fmt.Errorf("level %d: an id comes again", i)
			}
			ids[d.ID()], ids[sub.ID()] = true, true
			if err := errors.Join(mpi.Barrier(ctx, d), mpi.Barrier(ctx, sub), sub.Close()); err != nil {
				return err
			}
			chain = append(chain, d)
		}
		for _, d := range chain[1:] {
			if err := d.Close(); err != nil {
				return err
			}
		}
		return nil
	})(ctx)
}

func TestSplit_ColorsAndKeys_OrderMembers(t *testing.T) {
	policies(t, 5, inWorld(split), "agree", "lazy")
}

func split(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	// Even and odd ranks, in reverse.
	sub, err := c.Split(ctx, c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	var want []int64
	for r := c.Size() - 1; r >= 0; r-- {
		if r%2 == c.Rank()%2 {
			want = append(want, int64(r))
		}
	}
	if all, err := allgather(ctx, sub, int64(c.Rank())); err != nil || !slices.Equal(all, want) {
		return fmt.Errorf("split: %v, want %v, %w", all, want, err)
	}
	// Equal keys keep the order; a huge color; rank 2 stays out.
	color := 1 << 40
	if c.Rank() == 2 {
		color = mpi.Undefined
	}
	rest, err := c.Split(ctx, color, 7)
	if c.Rank() == 2 {
		if err := wants("Undefined", err, mpi.ErrNoComm); err != nil {
			return err
		}
	} else {
		if err != nil {
			return err
		}
		if all, err := allgather(ctx, rest, int64(c.Rank())); err != nil || !slices.Equal(all, []int64{0, 1, 3, 4}) {
			return fmt.Errorf("split: %v, %w", all, err)
		}
		if err := rest.Close(); err != nil {
			return err
		}
	}
	// A bad color is that member's error alone.
	color = 0
	if c.Rank() == 1 {
		color = -5
	}
	others, err := c.Split(ctx, color, 0)
	if c.Rank() == 1 {
		if err == nil {
			return errors.New("color -5 is accepted")
		}
	} else if err != nil || others.Size() != 4 {
		return fmt.Errorf("split with a bad color elsewhere: %w", err)
	} else if err := others.Close(); err != nil {
		return err
	}
	// A dup of a split, and ids that go on alike in all members.
	d, err := sub.Dup(ctx)
	if err != nil {
		return err
	}
	e, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	return errors.Join(mpi.Barrier(ctx, d), mpi.Barrier(ctx, e), d.Close(), e.Close(), sub.Close())
}

func TestCommFromGroup_MemberNeverCalls_IsNamed(t *testing.T) {
	ranks(t, 3, missing, "bootstrap.timeout=200ms")
}

func missing(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	pair, err := world.Incl(0, 1)
	if err != nil {
		return err
	}
	if world.Rank() == 2 {
		_, err = mpi.CommFromGroup(ctx, pair, "pair")
		if err := wants("CommFromGroup by a caller outside", err, mpi.ErrGroup); err != nil {
			return err
		}
		// Stay until the others have seen that rank 2 does not come.
		if _, err := waitPublished(ctx, s, world); err != nil {
			return err
		}
		return s.Close()
	}
	_, err = mpi.CommFromGroup(ctx, world, "all")
	var m *mpi.MissingError
	if err := errors.Join(wants("CommFromGroup without rank 2", err, mpi.ErrTimeout),
		must(errors.As(err, &m) && len(m.Missing) == 1 && m.Missing[0] == world.Members()[2], "it does not name rank 2: %v", err)); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if world.Rank() == 0 { // its own context is an end too
		_, err = mpi.CommFromGroup(short, world, "all")
		if err := wants("CommFromGroup past its context", err, mpi.ErrTimeout); err != nil {
			return err
		}
	}
	// The failure leaves no state, and the session still works.
	c, err := mpi.CommFromGroup(ctx, pair, "pair")
	if err != nil {
		return err
	}
	if err := errors.Join(mpi.Barrier(ctx, c), c.Close()); err != nil {
		return err
	}
	if _, err := waitPublished(ctx, s, world); err != nil {
		return err
	}
	return s.Close()
}

// waitPublished is a meeting of all by means of a construct.
func waitPublished(ctx context.Context, _ *mpi.Session, world *mpi.Group) (mpi.CommID, error) {
	for {
		c, err := mpi.CommFromGroup(ctx, world, "end")
		if err == nil {
			return c.ID(), c.Close()
		}
		if !errors.Is(err, mpi.ErrTimeout) || ctx.Err() != nil {
			return mpi.CommID{}, err
		}
	}
}

func TestPsets_NamedByLauncher_AreListed(t *testing.T) {
	t.Parallel()
	mpitest.Job{Size: 4, Psets: []server.Pset{{Name: "app://Odd", Ranks: []uint32{1, 3}}}}.RunSessions(t, psets)
}

func psets(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	names, err := s.Psets(ctx)
	if err != nil || !slices.Equal(names, []string{"mpi://WORLD", "mpi://SELF", "mpix://SHARED", "mpix://ROOTS", "app://Odd"}) {
		return fmt.Errorf("%v, %w", names, err)
	}
	_, err = s.Group(ctx, "app://even")
	if err := wants("an unknown set", err, mpi.ErrPset); err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	odd, err := s.Group(ctx, "APP://oDD")
	if err != nil {
		return err
	}
	info, err := s.PsetInfo(ctx, "app://odd")
	if err != nil || info.Size != 2 || info.Included != (world.Rank()%2 == 1) || info.Name != "app://Odd" {
		return fmt.Errorf("%+v, %w", info, err)
	}
	shared, err := s.Group(ctx, "mpix://shared")
	if err != nil || shared.Compare(world) != mpi.Identical {
		return fmt.Errorf("shared: %v, %w", shared.Members(), err)
	}
	if odd.Rank() == mpi.Undefined {
		return s.Close()
	}
	c, err := mpi.CommFromGroup(ctx, odd, "odd")
	if err != nil {
		return err
	}
	all, err := allgather(ctx, c, int64(world.Rank()))
	return errors.Join(err, must(slices.Equal(all, []int64{1, 3}), "%v", all), c.Close(), s.Close())
}

func TestCommFromGroup_PoliciesDiffer_MembersAgree(t *testing.T) { ranks(t, 3, mixed) }

func mixed(ctx context.Context) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	policies := []string{"agree", "gather", "lazy", "auto"}
	for round := range 8 {
		mine := policies[(world.Rank()*round)%len(policies)]
		c, err := mpi.CommFromGroup(ctx, world, "mixed", mpi.WithCommParam("cid.policy", mine))
		if err != nil {
			return err
		}
		all, err := allgather(ctx, c, int64(c.Rank()))
		if err := errors.Join(err, must(slices.Equal(all, []int64{0, 1, 2}), "round %d: %v", round, all), c.Close()); err != nil {
			return err
		}
	}
	_, err = mpi.CommFromGroup(ctx, world, "bad", mpi.WithCommParam("session.linger", "1s"))
	_, err2 := mpi.CommFromGroup(ctx, world, "bad", mpi.WithCommParam("cid.polici", "lazy"))
	return errors.Join(wants("a parameter of another scope", err, mpi.ErrConfig), wants("an unknown parameter", err2, mpi.ErrConfig), s.Close())
}
