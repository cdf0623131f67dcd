package conform

import (
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func communicatorCases() []Case {
	return []Case{
		of("communicator/dup waits for no messages", "7.4.2", 2, (*env).dupFirst),
		of("communicator/idup", "7.4.2", 1, (*env).idup),
		of("communicator/split by colour and key", "7.4.2", 1, (*env).split),
		of("communicator/split by node", "7.4.2", 1, (*env).splitShared),
		of("communicator/create", "7.4.2", 1, (*env).create),
		of("communicator/create from a group's members alone", "7.4.2", 1, (*env).createGroup),
		of("communicator/compare", "7.4.1", 1, (*env).compare),
		of("communicator/contexts never mix", "7.1", 1, (*env).contexts),
		of("communicator/overlapping ones in use at the same time", "7.4", 1, (*env).overlapping),
		of("communicator/closed with messages unreceived", "7.4.3", 1, (*env).closedEarly),
		of("communicator/pending operations survive the close", "7.4.3", 1, (*env).pendingClose),
		of("communicator/names", "7.8", 1, (*env).names),
	}
}

func (e *env) dupFirst() {
	c := e.c
	if c.Rank() == 0 {
		d := e.dup()
		for to := 1; to < c.Size(); to++ { // they have not called Dup
			e.Check(d.Bsend(e.ctx, []byte{9}, to, 0), c.Send(e.ctx, nil, to, 0))
		}
		e.works(d)
		return
	}
	need(c.Recv(e.ctx, nil, 0, 0))(e)
	d := e.dup()
	in := make([]byte, 1)
	e.status("sent before this rank's dup", 0, 0, 1)(d.Recv(e.ctx, in, 0, 0))
	e.must(in[0] == 9, "contents %v", in)
	e.works(d)
}

func (e *env) idup() {
	var reqs [3]*mpi.CommRequest
	for i := range reqs {
		reqs[i] = need(e.c.Idup())(e)
	}
	e.barrier() // others may be called meanwhile
	for _, r := range reqs {
		d := need(r.Wait(e.ctx))(e)
		e.works(d)
	}
}

func (e *env) split() {
	c := e.c
	n, me := c.Size(), c.Rank()
	// Even and odd ranks, in reverse.
	d := need(c.Split(e.ctx, me%2, -me))(e)
	var want []int
	for r := n - 1; r >= 0; r-- {
		if r%2 == me%2 {
			want = append(want, r)
		}
	}
	e.in("members", d.Group(), c.Group(), want...)
	e.works(d)
	// Equal keys keep the order of the ranks, with any color.
	d = need(c.Split(e.ctx, 1<<30, 5))(e)
	e.must(d.Rank() == me && d.Size() == n, "rank %d of %d", d.Rank(), d.Size())
	e.works(d)
	// Undefined gives no communicator, and does not affect the others.
	color := 3
	if me == n-1 {
		color = mpi.Undefined
	}
	d, err := c.Split(e.ctx, color, 0)
	if me == n-1 {
		e.Is("Undefined", err, mpi.ErrNoComm)
		return
	}
	e.Check(err)
	e.must(d.Size() == n-1, "%d members", d.Size())
	e.works(d)
}

// splitShared checks that the parts have one list of members each, and that shared memory reaches no rank of another part. The
// launcher's map of the nodes may differ.
func (e *env) splitShared() {
	c := e.c
	d := need(c.SplitShared(e.ctx, 0))(e)
	first := need(d.Group().Translate([]int{0}, c.Group()))(e)[0]
	parts := e.allgather(c, int64(first))
	var want []int
	for rank, part := range parts {
		if part == int64(first) {
			want = append(want, rank)
			continue
		}
		route := need(c.Transport(rank))(e)
		e.must(route.Component != "shm", "rank %d of another part is reached by %s", rank, route.Device)
	}
	e.in("members", d.Group(), c.Group(), want...)
	e.works(d)
}

func (e *env) create() {
	c := e.c
	ends := e.incl(c.Group(), e.ends()...)
	d, err := c.Create(e.ctx, ends)
	if ends.Rank() == mpi.Undefined {
		e.Is("no member", err, mpi.ErrNoComm)
	} else {
		e.Check(err)
		e.must(d.Rank() == ends.Rank() && d.Group().Compare(ends) == mpi.Identical, "rank %d of %v", d.Rank(), d.Group().Members())
		e.works(d)
	}
	// Disjoint groups in one call.
	mine := need(c.Group().RangeIncl([]mpi.Range{{First: c.Rank() % 2, Last: c.Size() - 1, Stride: 2}}))(e)
	d = need(c.Create(e.ctx, mine))(e)
	e.must(d.Size() == mine.Size(), "%d members", d.Size())
	e.works(d)
}

// createGroup checks concurrent calls of pairs of neighbors, without a call of the others.
func (e *env) createGroup() {
	c := e.c
	members := []int{c.Rank()&^1 + 1, c.Rank() &^ 1}
	if members[0] == c.Size() {
		members = members[1:] // alone
	}
	g := e.incl(c.Group(), members...)
	for range 3 { // the same tag again, back to back
		d := need(c.CreateGroup(e.ctx, g, 4))(e)
		e.must(d.Group().Compare(g) == mpi.Identical, "other members")
		e.works(d)
	}
	if c.Size() > 1 {
		_, err := c.CreateGroup(e.ctx, e.incl(c.Group(), e.rightRank), 4)
		e.Is("a group without the caller", err, mpi.ErrNoComm)
	}
}

func (e *env) compare() {
	c := e.c
	d := e.dup()
	reverse := need(c.Split(e.ctx, 0, -c.Rank()))(e)
	alone := need(c.Split(e.ctx, c.Rank(), 0))(e)
	wantReverse, wantAlone := mpi.Similar, mpi.Unequal
	if c.Size() == 1 {
		wantReverse, wantAlone = mpi.Congruent, mpi.Congruent
	}
	for _, x := range []struct {
		what string
		c    *mpi.Comm
		want mpi.Comparison
	}{{"itself", c, mpi.Identical}, {"a dup", d, mpi.Congruent}, {"reversed", reverse, wantReverse}, {"alone", alone, wantAlone}} {
		e.must(c.Compare(x.c) == x.want, "%s: %v", x.what, c.Compare(x.c))
		e.must(x.c == c || x.c.ID() != c.ID(), "%s: it has the id of its parent", x.what)
	}
	e.works(d)
	e.works(reverse)
	e.works(alone)
}

// contexts sends with equal ranks and tags on many communicators, and receives in another
// order.
func (e *env) contexts() {
	all := []*mpi.Comm{e.c}
	for range 20 {
		d := e.dup()
		s := need(d.Split(e.ctx, 0, d.Rank()))(e)
		all = append(all, d, s)
	}
	var reqs []mpi.Request
	for i, d := range all {
		reqs = append(reqs, e.isend(d, pattern(20+i*500, d.Rank(), i), e.rightRank, 1))
	}
	for i, d := range slices.Backward(all) {
		e.recv(d, mpi.AnySource, mpi.AnyTag, 1, pattern(20+i*500, e.leftRank, i))
	}
	e.Check(mpi.WaitAll(e.ctx, reqs, nil))
	for _, d := range all[1:] {
		e.Check(d.Close())
	}
}

// overlapping uses communicators with common members in goroutines, each in another
// order.
func (e *env) overlapping() {
	c := e.c
	var all []*mpi.Comm
	for i := range 4 {
		color := 0
		if i > 0 && c.Size() > 1 {
			color = (c.Rank() + i) / 2 % 2
		}
		d := need(c.Split(e.ctx, color, c.Rank()*(1-2*(i%2))))(e)
		all = append(all, d)
	}
	e.Each(len(all), func(i int) {
		for range 20 {
			d := need(all[i].Dup(e.ctx))(e)
			e.works(d)
		}
		e.works(all[i])
	})
}

// closedEarly checks that messages to a closed communicator are dropped, and those to the next one are not.
func (e *env) closedEarly() {
	for range 50 {
		d := e.dup()
		e.Check(d.Send(e.ctx, []byte{1}, e.rightRank, 0), d.Close())
		e.works(e.dup())
	}
}

func (e *env) pendingClose() {
	d := e.dup()
	const n = 100_000
	in := make([]byte, n)
	r := need(d.Irecv(in, e.leftRank, 0))(e)
	s := e.isend(d, pattern(n, d.Rank(), 0), e.rightRank, 0)
	e.Check(d.Close())
	e.wait(s)
	e.got(r, 0, in, pattern(n, e.leftRank, 0))
}

func (e *env) names() {
	d := e.dup()
	e.must(d.Name() == "", "a new one is called %q", d.Name())
	d.SetName("mine")
	e.must(d.Name() == "mine" && e.c.Name() != "mine", "%q and %q", d.Name(), e.c.Name())
	e.Check(d.Close())
}
