package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ferrympi/ferry/mpi"
)

func sessionCases() []Case {
	return []Case{
		{"session/several at once, in any order", "11.3", 1, severalSessions},
		{"session/opened again", "11.3", 1, reopened},
		{"session/thread levels", "11.6", 1, threadLevels},
		{"session/process sets", "11.3.2", 1, processSets},
		{"session/communicators of different sessions are apart", "11.3", 1, isolation},
		{"session/close with communicators open", "11.3.1", 1, closePending},
		{"session/use after close", "11.3.1", 1, afterSession},
		{"session/opening is local", "11.3.1", 2, localOpen},
		{"session/communicator from a group", "11.3.4", 1, fromGroup},
		{"session/the same tag back to back", "11.3.4", 1, backToBack},
		{"session/concurrent creations under different tags", "11.3.4", 1, concurrentCreations},
	}
}

// open opens a session with a communicator of all.
func open(ctx context.Context, tag string, opts ...mpi.SessionOption) (*mpi.Session, *mpi.Comm, error) {
	s, err := mpi.OpenSession(ctx, opts...)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, nil, err
	}
	c, err := mpi.CommFromGroup(ctx, g, tag)
	return s, c, err
}

func severalSessions(ctx context.Context, _ Env) error {
	const n = 4
	var sessions [n]*mpi.Session
	var comms [n]*mpi.Comm
	for i := range n {
		var err error
		if sessions[i], comms[i], err = open(ctx, "conform.several"); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	for _, i := range []int{2, 0, 3, 1} { // not in the order in which they were opened
		if err := errors.Join(works(ctx, comms[i]), sessions[i].Close()); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	return nil
}

func reopened(ctx context.Context, _ Env) error {
	for i := range 5 {
		s, c, err := open(ctx, "conform.again")
		if err == nil {
			err = errors.Join(works(ctx, c), s.Close())
		}
		if err != nil {
			return fmt.Errorf("time %d: %w", i, err)
		}
	}
	return nil
}

func threadLevels(ctx context.Context, _ Env) error {
	for _, level := range []mpi.ThreadLevel{mpi.ThreadSingle, mpi.ThreadFunneled, mpi.ThreadSerialized, mpi.ThreadMultiple} {
		s, err := mpi.OpenSession(ctx, mpi.WithThreadLevel(level))
		if err != nil {
			return err
		}
		if err := errors.Join(must(s.ThreadLevel() == level, "level %d, asked for %d", s.ThreadLevel(), level), s.Close()); err != nil {
			return err
		}
	}
	_, err := mpi.OpenSession(ctx, mpi.WithThreadLevel(99))
	return answers("a level that is none", err, mpi.ErrConfig)
}

func processSets(ctx context.Context, e Env) error {
	s := e.Session
	names, err := s.Psets(ctx)
	if err != nil {
		return err
	}
	if len(names) < 2 || names[0] != "mpi://WORLD" || names[1] != "mpi://SELF" {
		return fmt.Errorf("process sets %q", names)
	}
	for i, name := range names {
		info, err := s.PsetInfo(ctx, name)
		if err != nil {
			return err
		}
		g, err := s.Group(ctx, strings.ToUpper(name)) // names have no case
		if err != nil {
			return err
		}
		if err := errors.Join(must(info.Size == g.Size(), "%s: size %d and %d", name, info.Size, g.Size()),
			must(info.Included == (g.Rank() != mpi.Undefined), "%s: included %t, rank %d", name, info.Included, g.Rank()),
			must(i > 1 || info.Included, "%s does not include the caller", name),
			must(slices.Index(names, name) == i, "%s twice", name)); err != nil {
			return err
		}
	}
	self, err := s.Group(ctx, "mpi://SELF")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, self, "conform.self")
	if err != nil {
		return err
	}
	_, unknown := s.Group(ctx, "mpi://WOLRD")
	return errors.Join(must(c.Size() == 1 && c.Rank() == 0, "SELF: rank %d of %d", c.Rank(), c.Size()), works(ctx, c), answers("an unknown set", unknown, mpi.ErrPset))
}

// isolation: messages with equal ranks and tags, on communicators of different
// sessions with equal groups and tags.
func isolation(ctx context.Context, e Env) error {
	s1, c1, err := open(ctx, "conform.isolated")
	if err != nil {
		return err
	}
	s2, c2, err := open(ctx, "conform.isolated")
	if err != nil {
		return err
	}
	if err := errors.Join(must(c1.ID() != c2.ID(), "equal ids"), must(c1.Compare(c2) == mpi.Congruent, "compare: %v", c1.Compare(c2)),
		c1.Bsend(ctx, []byte{1}, e.right(), 0), c2.Bsend(ctx, []byte{2}, e.right(), 0)); err != nil {
		return err
	}
	in := make([]byte, 1)
	for _, x := range []struct {
		c    *mpi.Comm
		want byte
	}{{c2, 2}, {c1, 1}} {
		st, err := x.c.Recv(ctx, in, mpi.AnySource, mpi.AnyTag)
		if err := errors.Join(status("message", st, err, e.left(), 0, 1), must(in[0] == x.want, "message %d, want %d", in[0], x.want)); err != nil {
			return err
		}
	}
	// One goes, the other stays.
	return errors.Join(c1.Close(), s1.Close(), works(ctx, c2), s2.Close())
}

func closePending(ctx context.Context, _ Env) error {
	s, c, err := open(ctx, "conform.pending")
	if err != nil {
		return err
	}
	if err := answers("close", s.Close(), mpi.ErrPending); err != nil {
		return err
	}
	return errors.Join(works(ctx, c), s.Close()) // nothing had happened
}

func afterSession(ctx context.Context, _ Env) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	g, err := s.Group(ctx, "mpi://SELF")
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	_, psets := s.Psets(ctx)
	_, group := s.Group(ctx, "mpi://WORLD")
	_, comm := mpi.CommFromGroup(ctx, g, "conform.closed")
	_, memory := mpi.AllocMem(s, 8)
	return errors.Join(answers("close again", s.Close(), mpi.ErrClosed), answers("psets", psets, mpi.ErrClosed), answers("group", group, mpi.ErrClosed),
		answers("communicator", comm, mpi.ErrClosed), answers("memory", memory, mpi.ErrClosed), must(g.Size() == 1, "a group outlives its session"))
}

// localOpen: rank 0 opens and closes, while the others wait for its message.
func localOpen(ctx context.Context, e Env) error {
	if e.Comm.Rank() != 0 {
		_, err := e.Comm.Recv(ctx, nil, 0, 0)
		return err
	}
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	g, err := s.Group(ctx, "mpi://WORLD")
	err = errors.Join(err, must(g.Size() == e.Comm.Size(), "WORLD has %d members", g.Size()), s.Close())
	for to := 1; to < e.Comm.Size(); to++ {
		err = errors.Join(err, e.Comm.Send(ctx, nil, to, 0))
	}
	return err
}

func fromGroup(ctx context.Context, e Env) error {
	all, err := e.Session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	reversed := upTo(all.Size())
	slices.Reverse(reversed)
	g, err := all.Incl(reversed...)
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, g, "conform.reversed")
	if err != nil {
		return err
	}
	if err := errors.Join(must(c.Rank() == all.Size()-1-all.Rank(), "rank %d", c.Rank()), works(ctx, c)); err != nil || all.Size() == 1 {
		return err
	}
	others, err := all.Excl(all.Rank())
	if err != nil {
		return err
	}
	_, err = mpi.CommFromGroup(ctx, others, "conform.outside")
	return answers("a group without the caller", err, mpi.ErrGroup)
}

func backToBack(ctx context.Context, e Env) error {
	ids := map[mpi.CommID]bool{}
	for i := range 20 {
		c, err := mpi.CommFromGroup(ctx, e.Comm.Group(), "conform.same")
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if err := errors.Join(must(!ids[c.ID()], "an id comes again"), works(ctx, c)); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		ids[c.ID()] = true
	}
	return nil
}

func concurrentCreations(ctx context.Context, e Env) error {
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for range 3 {
				c, err := mpi.CommFromGroup(ctx, e.Comm.Group(), fmt.Sprint("conform.", i))
				if err == nil {
					err = works(ctx, c)
				}
				if errs[i] = err; err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
