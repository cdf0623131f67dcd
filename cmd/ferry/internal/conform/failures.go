package conform

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// ulfm is the section of cases about the calls of User Level Failure Mitigation.
const ulfm = "ULFM"

// failureCases returns the cases of Failed, AckFailed, Revoke, Agree and Shrink without deaths.
func failureCases() []Case {
	return []Case{
		of("ft/without a failure there are none to report or acknowledge", ulfm, 1, (*env).noFailures),
		of("ft/agree combines the flags of all members", ulfm, 1, (*env).agree),
		of("ft/agree on a revoked communicator", ulfm, 1, (*env).agreeRevoked),
		of("ft/agree counts the flags of a member that no longer waits", ulfm, 2, (*env).agreeTimeout),
		of("ft/agree and shrink in different members are an error in all", ulfm, 2, (*env).mixed),
		of("ft/one agree or shrink of a member at a time", ulfm, 2, (*env).twoCalls),
		of("ft/revoke ends operations that wait", ulfm, 2, (*env).revokeWaiting),
		of("ft/revoke ends collectives and creations that wait", ulfm, 2, (*env).revokeCollectives),
		of("ft/revoke lets local calls, agree and shrink work", ulfm, 1, (*env).revokedCalls),
		of("ft/revoke by all members at once", ulfm, 1, (*env).revokeTogether),
		of("ft/revoke leaves other communicators alone", ulfm, 1, (*env).revokeOne),
		of("ft/shrink keeps the members and their order", ulfm, 1, (*env).shrink),
		of("ft/shrink of a revoked communicator", ulfm, 1, (*env).shrinkRevoked),
		of("ft/shrink of a broken communicator", ulfm, 2, (*env).shrinkBroken),
		of("ft/shrink many times", ulfm, 1, (*env).shrinkMany),
		of("ft/shrink leaves out a member that no longer waits", ulfm, 2, (*env).shrinkTimeout),
		of("ft/shrink leaves out a member that has closed the communicator", ulfm, 2, (*env).shrinkClosed),
	}
}

// briefly is a context that ends while a call waits for others.
func (e *env) briefly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, 20*time.Millisecond)
}

// agrees checks the outcome of an agreement.
func (e *env) agrees(c *mpi.Comm, flags, want uint64) {
	got, err := c.Agree(e.ctx, flags)
	e.must(err == nil && got == want, "agree: %#x, %v; want %#x", got, err, want)
}

// shrinks checks the members of a shrunk communicator, which it closes.
func (e *env) shrinks(c *mpi.Comm, want ...int) {
	next := need(c.Shrink(e.ctx))(e)
	e.in("members", next.Group(), c.Group(), want...)
	e.must(next.ID() != c.ID() && !next.Revoked() && len(next.Failed()) == 0, "the shrunk communicator is not a new one")
	e.works(next)
}

// revoked is a duplicate that rank 0 has revoked, as each member has noticed.
func (e *env) revoked() *mpi.Comm {
	d := e.dup()
	e.revoke(d)
	return d
}

// revoke revokes a communicator in rank 0. The other members notice.
func (e *env) revoke(c *mpi.Comm) {
	if c.Rank() == 0 {
		e.Check(c.Revoke())
	} else {
		_, err := c.Recv(e.ctx, nil, 0, 0)
		e.Is("receive", err, mpi.ErrRevoked)
	}
	e.must(c.Revoked(), "it is not revoked")
}

// except returns the ranks of a communicator other than one.
func except(c *mpi.Comm, rank int) []int {
	return slices.DeleteFunc(upTo(c.Size()), func(r int) bool { return r == rank })
}

func (e *env) noFailures() {
	e.must(len(e.c.Failed()) == 0, "failed: %v", e.c.Failed())
	e.must(e.c.AckFailed(3) == 0 && e.c.AckFailed(-1) == 0, "failures are acknowledged")
	e.must(!e.c.Revoked(), "it is revoked")
}

func (e *env) agree() {
	n, me := e.c.Size(), e.c.Rank()
	for i := range 30 {
		want := uint64(math.MaxUint64)
		for rank := range n {
			want &^= 1 << ((rank + i) % 64)
		}
		e.agrees(e.c, ^uint64(1<<((me+i)%64)), want)
		if i%10 == 0 {
			e.allgather(e.c, int64(me))
		}
	}
	e.agrees(e.c, math.MaxUint64, math.MaxUint64)
	e.agrees(e.c, 0, 0)
}

func (e *env) agreeRevoked() {
	d := e.revoked()
	for i := range 5 {
		e.agrees(d, uint64(i)|uint64(d.Rank()&1)<<10, uint64(i))
	}
	e.Check(d.Close())
}

func (e *env) agreeTimeout() {
	d := e.dup()
	if d.Rank() == 0 {
		ctx, cancel := e.briefly()
		defer cancel()
		_, err := d.Agree(ctx, 6)
		e.Is("agree", err, context.DeadlineExceeded)
	}
	e.barrier()
	if d.Rank() > 0 {
		e.agrees(d, 3, 2)
	}
	e.agrees(d, 5, 5)
	e.Check(d.Close())
}

func (e *env) mixed() {
	d := e.dup()
	var err error
	if d.Rank() == 0 {
		_, err = d.Agree(e.ctx, 1)
	} else {
		_, err = d.Shrink(e.ctx)
	}
	e.must(err != nil && !errors.Is(err, mpi.ErrProcFailed), "agree in rank 0, and shrink in the others: %v", err)
	e.agrees(d, 3, 3)
	e.Check(d.Close())
}

// twoCalls checks that the others can call after the end of one of the two calls of rank 0.
func (e *env) twoCalls() {
	d := e.dup()
	for range 3 {
		if d.Rank() > 0 {
			e.barrier()
			e.agrees(d, 7, 7)
			continue
		}
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := d.Agree(e.ctx, 7)
				results <- err
			}()
		}
		first := <-results
		e.barrier()
		second := <-results
		e.Is("the first call to end", first, mpi.ErrPending)
		e.Check(second)
	}
	e.Check(d.Close())
}

func (e *env) revokeWaiting() {
	d := e.dup()
	me, in := d.Rank(), make([]byte, 100_000)
	p := need(d.RecvInit(make([]byte, 1), e.leftRank, 5))(e)
	e.Check(p.Start())
	pending := []mpi.Request{
		need(d.Irecv(in, e.leftRank, 1))(e),
		need(d.Irecv(make([]byte, 1), mpi.AnySource, 2))(e),
		need(d.Issend([]byte{1}, e.rightRank, 3))(e),
		need(d.Isend(pattern(1<<20, me, 0), e.rightRank, 4))(e),
	}
	if me == 0 {
		e.barrier()
		e.Check(d.Revoke())
	} else {
		blocked := make(chan error, 2)
		go func() {
			_, err := d.Recv(e.ctx, nil, e.leftRank, 6)
			blocked <- err
		}()
		go func() {
			_, err := d.Probe(e.ctx, mpi.AnySource, 7)
			blocked <- err
		}()
		e.barrier()
		for range 2 {
			e.Is("receive or probe", <-blocked, mpi.ErrRevoked)
		}
	}
	for i, r := range pending {
		_, err := r.Wait(e.ctx)
		if i == 3 && err == nil { // A send may be buffered.
			continue
		}
		e.must(errors.Is(err, mpi.ErrRevoked), "operation %d: %v, want ErrRevoked", i, err)
	}
	_, err := p.Wait(e.ctx)
	e.Is("persistent receive", err, mpi.ErrRevoked)
	e.barrier() // A member that has closed the communicator drops messages.
	e.Check(p.Free(), d.Close())
}

func (e *env) revokeCollectives() {
	for i := range 4 {
		d := e.dup()
		var err error
		switch {
		case d.Rank() == 0:
			e.barrier()
			e.Check(d.Revoke())
			err = mpi.Barrier(e.ctx, d)
		case i == 0:
			e.barrier()
			err = mpi.Allreduce(e.ctx, d, nil, make([]int64, 1000), mpi.Sum[int64]())
		case i == 1:
			r := need(mpi.Ibarrier(d))(e)
			e.barrier()
			_, err = r.Wait(e.ctx)
		case i == 2:
			e.barrier()
			_, err = d.Split(e.ctx, 0, 0)
		case i == 3:
			e.barrier()
			_, err = d.CreateGroup(e.ctx, d.Group(), 1)
		}
		e.must(errors.Is(err, mpi.ErrRevoked), "collective %d: %v, want ErrRevoked", i, err)
		e.barrier()
		e.Check(d.Close())
	}
}

func (e *env) revokedCalls() {
	d := e.revoked()
	_, err := d.Recv(e.ctx, nil, mpi.AnySource, 0)
	e.Is("receive", err, mpi.ErrRevoked)
	e.Is("send", d.Send(e.ctx, nil, e.rightRank, 0), mpi.ErrRevoked)
	_, _, err = d.Iprobe(mpi.AnySource, mpi.AnyTag)
	e.Is("probe", err, mpi.ErrRevoked)
	e.Is("barrier", mpi.Barrier(e.ctx, d), mpi.ErrRevoked)
	_, err = d.Dup(e.ctx)
	e.Is("dup", err, mpi.ErrRevoked)
	_, err = d.Split(e.ctx, 0, 0)
	e.Is("split", err, mpi.ErrRevoked)
	// A nonblocking operation starts.
	_, err = need(d.Isend(nil, e.rightRank, 0))(e).Wait(e.ctx)
	e.Is("wait for a send", err, mpi.ErrRevoked)
	_, err = need(d.Irecv(nil, e.leftRank, 0))(e).Wait(e.ctx)
	e.Is("wait for a receive", err, mpi.ErrRevoked)

	e.must(d.Rank() == e.c.Rank() && d.Size() == e.c.Size() && len(d.Failed()) == 0 && d.AckFailed(1) == 0, "local calls fail")
	e.Check(d.Revoke())
	e.agrees(d, 3, 3)
	e.shrinks(d, upTo(d.Size())...)
	e.Check(d.Close())
	e.Is("revoke after close", d.Revoke(), mpi.ErrClosed)
}

func (e *env) revokeTogether() {
	for range 20 {
		d := e.dup()
		e.Check(d.Revoke(), d.Revoke())
		e.shrinks(d, upTo(d.Size())...)
		e.Check(d.Close())
	}
}

func (e *env) revokeOne() {
	d := e.dup()
	child := need(d.Dup(e.ctx))(e)
	e.barrier() // All members have the child.
	e.revoke(d)
	e.must(!child.Revoked() && !e.c.Revoked(), "others are revoked")
	e.works(child)
	e.Check(d.Close())
	e.works(e.dup())
}

func (e *env) shrink() {
	d := e.dup()
	e.shrinks(d, upTo(d.Size())...)
	reverse := need(d.Split(e.ctx, 0, -d.Rank()))(e)
	e.shrinks(reverse, upTo(d.Size())...)
	e.works(reverse)
	e.works(d)
}

func (e *env) shrinkRevoked() {
	d := e.revoked()
	e.shrinks(d, upTo(d.Size())...)
	e.Check(d.Close())
}

func (e *env) shrinkBroken() {
	d := e.dup()
	if d.Rank() == 0 {
		ctx, cancel := e.briefly()
		defer cancel()
		e.must(mpi.Barrier(ctx, d) != nil, "a barrier ends without the others")
	} else {
		_, err := e.c.Recv(e.ctx, nil, 0, 1)
		e.Check(err)
		for err == nil { // Rank 0 may have entered the first one long enough for some.
			err = mpi.Barrier(e.ctx, d)
		}
		e.Is("barrier", err, mpi.ErrBroken)
	}
	for to := 1; to < d.Size() && d.Rank() == 0; to++ {
		e.Check(e.c.Send(e.ctx, nil, to, 1))
	}
	e.shrinks(d, upTo(d.Size())...)
	e.Check(d.Close())
}

func (e *env) shrinkMany() {
	d := e.dup()
	for i := range 20 {
		if i%2 == 1 {
			e.Check(d.Revoke())
		}
		next := need(d.Shrink(e.ctx))(e)
		e.in("members", next.Group(), e.c.Group(), upTo(e.c.Size())...)
		e.Check(d.Close())
		d = next
	}
	e.works(d)
}

func (e *env) shrinkTimeout() {
	d := e.dup()
	if d.Rank() == 0 {
		ctx, cancel := e.briefly()
		defer cancel()
		_, err := d.Shrink(ctx)
		e.Is("shrink", err, context.DeadlineExceeded)
	}
	e.barrier()
	if d.Rank() > 0 {
		e.shrinks(d, except(d, 0)...)
	}
	e.Check(d.Close())
}

func (e *env) shrinkClosed() {
	d := e.dup()
	if d.Rank() == 0 {
		e.Check(d.Close())
	}
	e.barrier()
	if d.Rank() > 0 {
		e.agrees(d, 6, 6)
		e.shrinks(d, except(d, 0)...)
		e.Check(d.Close())
	}
}
