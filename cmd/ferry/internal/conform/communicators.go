package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/mpi"
)

func communicatorCases() []Case {
	return []Case{
		{"communicator/dup has a context of its own", "7.4.2", 1, dup},
		{"communicator/dup waits for nobody's messages", "7.4.2", 2, dupFirst},
		{"communicator/idup", "7.4.2", 1, idup},
		{"communicator/split by colour and key", "7.4.2", 1, split},
		{"communicator/split by node", "7.4.2", 1, splitShared},
		{"communicator/create", "7.4.2", 1, create},
		{"communicator/create from a group's members alone", "7.4.2", 1, createGroup},
		{"communicator/compare", "7.4.1", 1, compare},
		{"communicator/contexts never mix", "7.1", 1, contexts},
		{"communicator/overlapping ones in use at the same time", "7.4", 1, overlapping},
		{"communicator/closed with messages unreceived", "7.4.3", 1, closedEarly},
		{"communicator/pending operations survive the close", "7.4.3", 1, pendingClose},
		{"communicator/use after close", "7.4.3", 1, afterClose},
		{"communicator/attributes", "7.7", 1, attributes},
		{"communicator/names", "7.8", 1, names},
	}
}

func dup(ctx context.Context, e Env) error {
	c := e.Comm
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(must(d.Rank() == c.Rank() && d.Size() == c.Size(), "rank %d of %d", d.Rank(), d.Size()),
		must(d.ID() != c.ID(), "it has the id of its parent"), must(c.Compare(d) == mpi.Congruent, "compare: %v", c.Compare(d))); err != nil {
		return err
	}
	// What was sent on one is not received on the other.
	if err := errors.Join(c.Bsend(ctx, []byte{1}, e.right(), 0), d.Bsend(ctx, []byte{2}, e.right(), 0)); err != nil {
		return err
	}
	in := make([]byte, 1)
	for _, x := range []struct {
		c    *mpi.Comm
		want byte
	}{{d, 2}, {c, 1}} {
		st, err := x.c.Recv(ctx, in, mpi.AnySource, mpi.AnyTag)
		if err := errors.Join(status("message", st, err, e.left(), 0, 1), must(in[0] == x.want, "message %d, want %d", in[0], x.want)); err != nil {
			return err
		}
	}
	return works(ctx, d)
}

func dupFirst(ctx context.Context, e Env) error {
	c := e.Comm
	var d *mpi.Comm
	var err error
	if c.Rank() == 0 {
		if d, err = c.Dup(ctx); err != nil {
			return err
		}
		for to := 1; to < c.Size(); to++ { // they have not called Dup
			if err := errors.Join(d.Bsend(ctx, []byte{9}, to, 0), c.Send(ctx, nil, to, 0)); err != nil {
				return err
			}
		}
		return works(ctx, d)
	}
	if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
		return err
	}
	if d, err = c.Dup(ctx); err != nil {
		return err
	}
	in := make([]byte, 1)
	st, err := d.Recv(ctx, in, 0, 0)
	return errors.Join(status("sent before this rank's dup", st, err, 0, 0, 1), must(in[0] == 9, "contents %v", in), works(ctx, d))
}

func idup(ctx context.Context, e Env) error {
	var reqs [3]*mpi.CommRequest
	for i := range reqs {
		var err error
		if reqs[i], err = e.Comm.Idup(); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, e.Comm); err != nil { // others may be called meanwhile
		return err
	}
	for i, r := range reqs {
		d, err := r.Wait(ctx)
		if err != nil {
			return fmt.Errorf("idup %d: %w", i, err)
		}
		if err := works(ctx, d); err != nil {
			return fmt.Errorf("idup %d: %w", i, err)
		}
	}
	return nil
}

func split(ctx context.Context, e Env) error {
	c := e.Comm
	n, me := c.Size(), c.Rank()
	// Even and odd ranks, in reverse.
	d, err := c.Split(ctx, me%2, -me)
	if err != nil {
		return err
	}
	var want []int
	for r := n - 1; r >= 0; r-- {
		if r%2 == me%2 {
			want = append(want, r)
		}
	}
	ranks, err := d.Group().Translate(upTo(d.Size()), c.Group())
	if err := errors.Join(err, must(slices.Equal(ranks, want), "members %v, want %v", ranks, want), works(ctx, d)); err != nil {
		return err
	}
	// Equal keys keep the order of the ranks, whatever the colour's size.
	if d, err = c.Split(ctx, 1<<30, 5); err != nil {
		return err
	}
	if err := errors.Join(must(d.Rank() == me && d.Size() == n, "rank %d of %d", d.Rank(), d.Size()), works(ctx, d)); err != nil {
		return err
	}
	// Who wants none gets none, and the others their own.
	color := 3
	if me == n-1 {
		color = mpi.Undefined
	}
	d, err = c.Split(ctx, color, 0)
	if me == n-1 {
		return answers("Undefined", err, mpi.ErrNoComm)
	}
	if err != nil {
		return err
	}
	return errors.Join(must(d.Size() == n-1, "%d members", d.Size()), works(ctx, d))
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func splitShared(ctx context.Context, e Env) error {
	d, err := e.Comm.SplitShared(ctx, 0)
	if err != nil {
		return err
	}
	node, err := e.Session.Group(ctx, "mpix://SHARED")
	if err != nil {
		return err
	}
	same := d.Group().Compare(node.Intersection(e.Comm.Group()))
	return errors.Join(must(same == mpi.Identical || same == mpi.Similar, "its members are not those of mpix://SHARED: %v", same), works(ctx, d))
}

func create(ctx context.Context, e Env) error {
	c := e.Comm
	last, err := c.Group().Incl(c.Size()-1, 0)
	if c.Size() == 1 {
		last, err = c.Group().Incl(0)
	}
	if err != nil {
		return err
	}
	d, err := c.Create(ctx, last)
	if last.Rank() == mpi.Undefined {
		err = answers("no member", err, mpi.ErrNoComm)
	} else if err == nil {
		err = errors.Join(must(d.Rank() == last.Rank() && d.Group().Compare(last) == mpi.Identical, "rank %d of %v", d.Rank(), d.Group().Members()), works(ctx, d))
	}
	if err != nil {
		return err
	}
	// Groups that have nothing in common, in one call.
	mine, err := c.Group().RangeIncl([]mpi.Range{{First: c.Rank() % 2, Last: c.Size() - 1, Stride: 2}})
	if err != nil {
		return err
	}
	if d, err = c.Create(ctx, mine); err != nil {
		return err
	}
	return errors.Join(must(d.Size() == mine.Size(), "%d members", d.Size()), works(ctx, d))
}

// createGroup: pairs of neighbours, at the same time, while others do nothing.
func createGroup(ctx context.Context, e Env) error {
	c := e.Comm
	for round := range 3 { // the same tag again, back to back
		first := c.Rank() &^ 1
		if first+1 >= c.Size() {
			first = c.Size() - 1 // alone
		}
		members := []int{first}
		if first+1 < c.Size() {
			members = []int{first + 1, first}
		}
		g, err := c.Group().Incl(members...)
		if err != nil {
			return err
		}
		d, err := c.CreateGroup(ctx, g, 4)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := errors.Join(must(d.Group().Compare(g) == mpi.Identical, "other members"), works(ctx, d)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if c.Size() == 1 {
		return nil
	}
	only, err := c.Group().Incl((c.Rank() + 1) % c.Size())
	if err != nil {
		return err
	}
	_, err = c.CreateGroup(ctx, only, 4)
	return answers("a group without the caller", err, mpi.ErrNoComm)
}

func compare(ctx context.Context, e Env) error {
	c := e.Comm
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	reverse, err := c.Split(ctx, 0, -c.Rank())
	if err != nil {
		return err
	}
	alone, err := c.Split(ctx, c.Rank(), 0)
	if err != nil {
		return err
	}
	wantReverse, wantAlone := mpi.Similar, mpi.Unequal
	if c.Size() == 1 {
		wantReverse, wantAlone = mpi.Congruent, mpi.Congruent
	}
	return errors.Join(
		must(c.Compare(c) == mpi.Identical, "itself: %v", c.Compare(c)), must(c.Compare(d) == mpi.Congruent, "a dup: %v", c.Compare(d)),
		must(c.Compare(reverse) == wantReverse, "reversed: %v", c.Compare(reverse)), must(c.Compare(alone) == wantAlone, "alone: %v", c.Compare(alone)),
		works(ctx, d), works(ctx, reverse), works(ctx, alone))
}

// contexts: the same ranks and tags on many communicators, received in another
// order than sent.
func contexts(ctx context.Context, e Env) error {
	var all []*mpi.Comm
	for range 20 {
		d, err := e.Comm.Dup(ctx)
		if err != nil {
			return err
		}
		s, err := d.Split(ctx, 0, d.Rank())
		if err != nil {
			return err
		}
		all = append(all, d, s)
	}
	var reqs []mpi.Request
	for i, d := range all {
		r, err := d.Isend(pattern(20+i*500, d.Rank(), i), e.right(), 1)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	var errs []error
	for i, d := range slices.Backward(all) {
		n := 20 + i*500
		in := make([]byte, n)
		st, err := d.Recv(ctx, in, mpi.AnySource, mpi.AnyTag)
		errs = append(errs, status("message", st, err, e.left(), 1, n), same("message", in, pattern(n, e.left(), i)))
	}
	errs = append(errs, mpi.WaitAll(ctx, reqs, nil))
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// overlapping: goroutines use communicators with members in common, each in its
// own order.
func overlapping(ctx context.Context, e Env) error {
	c := e.Comm
	var all []*mpi.Comm
	for i := range 4 {
		color := 0
		if i > 0 && c.Size() > 1 {
			color = (c.Rank() + i) / 2 % 2
		}
		d, err := c.Split(ctx, color, c.Rank()*(1-2*(i%2)))
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, d := range all {
		wg.Go(func() {
			for range 20 {
				d2, err := d.Dup(ctx)
				if err == nil {
					err = works(ctx, d2)
				}
				if errs[i] = err; err != nil {
					return
				}
			}
			errs[i] = works(ctx, d)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closedEarly: messages to it are dropped, and those to the next one are not.
func closedEarly(ctx context.Context, e Env) error {
	for i := range 50 {
		d, err := e.Comm.Dup(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Send(ctx, []byte{1}, e.right(), 0), d.Close()); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		next, err := e.Comm.Dup(ctx)
		if err != nil {
			return err
		}
		if err := works(ctx, next); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return nil
}

func pendingClose(ctx context.Context, e Env) error {
	d, err := e.Comm.Dup(ctx)
	if err != nil {
		return err
	}
	in := make([]byte, 100_000)
	r, err := d.Irecv(in, e.left(), 0)
	if err != nil {
		return err
	}
	s, err := d.Isend(pattern(len(in), d.Rank(), 0), e.right(), 0)
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	_, sendErr := s.Wait(ctx)
	st, err := r.Wait(ctx)
	return errors.Join(sendErr, status("receive", st, err, e.left(), 0, len(in)), same("receive", in, pattern(len(in), e.left(), 0)))
}

func afterClose(ctx context.Context, e Env) error {
	d, err := e.Comm.Dup(ctx)
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	_, recv := d.Recv(ctx, nil, 0, 0)
	_, isend := d.Isend(nil, 0, 0)
	_, probe := d.Probe(ctx, 0, 0)
	_, dup := d.Dup(ctx)
	_, split := d.Split(ctx, 0, 0)
	return errors.Join(answers("close again", d.Close(), mpi.ErrClosed), answers("send", d.Send(ctx, nil, 0, 0), mpi.ErrClosed),
		answers("receive", recv, mpi.ErrClosed), answers("isend", isend, mpi.ErrClosed), answers("probe", probe, mpi.ErrClosed),
		answers("dup", dup, mpi.ErrClosed), answers("split", split, mpi.ErrClosed), answers("barrier", mpi.Barrier(ctx, d), mpi.ErrClosed))
}

func attributes(ctx context.Context, e Env) error {
	var deleted []int
	kept := mpi.NewKey(mpi.KeyHooks[int]{
		Copy:   func(v int) (int, bool) { return v + 1, v < 100 },
		Delete: func(v int) { deleted = append(deleted, v) },
	})
	own := mpi.NewKey(mpi.KeyHooks[string]{})
	a, err := e.Comm.Dup(ctx)
	if err != nil {
		return err
	}
	_, before := mpi.Attr(a, kept)
	if err := errors.Join(must(!before, "an attribute that nobody set"), mpi.SetAttr(a, kept, 1), mpi.SetAttr(a, kept, 5), mpi.SetAttr(a, own, "x")); err != nil {
		return err
	}
	b, err := a.Dup(ctx)
	if err != nil {
		return err
	}
	va, okA := mpi.Attr(a, kept)
	vb, okB := mpi.Attr(b, kept)
	text, okText := mpi.Attr(a, own)
	_, copied := mpi.Attr(b, own)
	if err := errors.Join(must(okA && va == 5 && okB && vb == 6, "values %d and %d", va, vb), must(okText && text == "x", "%q", text),
		must(!copied, "a key without Copy was copied"), must(slices.Equal(deleted, []int{1}), "deleted %v, want what was replaced", deleted)); err != nil {
		return err
	}
	if err := errors.Join(mpi.SetAttr(b, kept, 100), mpi.DeleteAttr(a, own)); err != nil {
		return err
	}
	refused, err := b.Dup(ctx)
	if err != nil {
		return err
	}
	_, has := mpi.Attr(refused, kept)
	_, gone := mpi.Attr(a, own)
	closed := errors.Join(a.Close(), b.Close(), refused.Close())
	return errors.Join(closed, must(!has, "Copy said no, and it was copied"), must(!gone, "a deleted attribute is there"),
		must(slices.Equal(deleted, []int{1, 6, 5, 100}), "deleted %v, want 1, 6, 5, 100", deleted),
		answers("set on a closed one", mpi.SetAttr(a, kept, 1), mpi.ErrClosed))
}

func names(ctx context.Context, e Env) error {
	d, err := e.Comm.Dup(ctx)
	if err != nil {
		return err
	}
	first := d.Name()
	d.SetName("mine")
	return errors.Join(must(first == "", "a new one is called %q", first), must(d.Name() == "mine" && e.Comm.Name() != "mine", "%q and %q", d.Name(), e.Comm.Name()), d.Close())
}
