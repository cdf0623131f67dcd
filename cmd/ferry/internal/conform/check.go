package conform

import (
	"context"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mpi"
)

// env is the environment of a case in this rank. A failed step ends the case here.
type env struct {
	*kittest.T
	ctx                 context.Context
	session             *mpi.Session
	c                   *mpi.Comm
	leftRank, rightRank int // In a ring of all ranks; a single rank is its own neighbor.
	caseName            string
	// See role. 0 in the first processes.
	roleStage int
	dieNow    func()
}

// of makes a case.
func of(name, section string, ranks int, run func(*env)) Case {
	return Case{Name: name, Section: section, MinRanks: ranks, Run: func(ctx context.Context, e Env) error {
		return kittest.Run(ctx, func(t *kittest.T) {
			all := env{T: t, ctx: t.Context(), session: e.Session, caseName: name, roleStage: e.roleStage, dieNow: e.Die}
			if all.dieNow == nil {
				all.dieNow = Kill
			}
			if e.Comm != nil {
				all = all.on(e.Comm)
			}
			run(&all)
		})
	}}
}

// on returns the env with another communicator.
func (e env) on(c *mpi.Comm) env {
	n, me := c.Size(), c.Rank()
	e.c, e.leftRank, e.rightRank = c, (me+n-1)%n, (me+1)%n
	return e
}

// need is the result of a step without which the case can't go on.
func need[V any](v V, err error) func(*env) V {
	return func(e *env) V {
		e.Check(err)
		return v
	}
}

// must ends the case where a condition does not hold.
func (e *env) must(ok bool, format string, args ...any) {
	if !ok {
		e.Fatalf(format, args...)
	}
}

// status checks that a step worked, and its status.
func (e *env) status(what string, source, tag, n int) func(mpi.Status, error) {
	return func(got mpi.Status, err error) {
		if err != nil {
			e.Fatalf("%s: %w", what, err)
		}
		e.must(got.Source == source && got.Tag == tag && got.Bytes == n && !got.Canceled,
			"%s: %+v, want %d bytes from %d with tag %d", what, got, n, source, tag)
	}
}

// none checks the status of an operation without a message.
func (e *env) none(what string) func(mpi.Status, error) {
	return e.status(what, mpi.AnySource, mpi.AnyTag, 0)
}

// null checks the status of an operation with ProcNull.
func (e *env) null(what string) func(mpi.Status, error) {
	return e.status(what, mpi.ProcNull, mpi.AnyTag, 0)
}

// pattern is contents that differ by sender and message.
func pattern(n, rank, message int) []byte { return kittest.Payload(rank+message*101, n) }

// isend and irecv start an operation; every case waits for those that it starts.
func (e *env) isend(c *mpi.Comm, b []byte, dst, tag int) mpi.Request {
	return need(c.Isend(b, dst, tag))(e)
}

func (e *env) irecv(b []byte, src, tag int) mpi.Request { return need(e.c.Irecv(b, src, tag))(e) }

// wait waits for a send, or another operation without a checked status.
func (e *env) wait(r mpi.Request) { need(r.Wait(e.ctx))(e) }

// got waits for a receive into in, and compares it with sent, from the left with tag.
func (e *env) got(r mpi.Request, tag int, in, sent []byte) {
	e.status("receive", e.leftRank, tag, len(sent))(r.Wait(e.ctx))
	e.Same("receive", in, sent)
}

// recv receives by src and tag, and compares the message with sent, from the left with the tag with.
func (e *env) recv(c *mpi.Comm, src, tag, with int, sent []byte) {
	in := make([]byte, len(sent))
	e.status("receive", e.leftRank, with, len(sent))(c.Recv(e.ctx, in, src, tag))
	e.Same("receive", in, sent)
}

func (e *env) barrier() { e.Check(mpi.Barrier(e.ctx, e.c)) }

func (e *env) dup() *mpi.Comm { return need(e.c.Dup(e.ctx))(e) }

// allgather returns the numbers of all ranks.
func (e *env) allgather(c *mpi.Comm, mine int64) []int64 {
	all := make([]int64, c.Size())
	all[c.Rank()] = mine
	e.Check(mpi.Allreduce(e.ctx, c, nil, all, mpi.Sum[int64]()))
	return all
}

// works shows that a communicator carries messages and collectives among its
// members, and closes it.
func (e *env) works(c *mpi.Comm) {
	n := c.Size()
	in := make([]byte, 4)
	right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	e.status("ring", left, 3, 4)(c.Sendrecv(e.ctx, pattern(4, c.Rank(), n), right, 3, in, left, 3))
	e.Same("ring", in, pattern(4, left, n))
	for i, x := range e.allgather(c, int64(c.Rank()+1)) {
		e.must(x == int64(i+1), "allgather: %d of rank %d", x, i)
	}
	e.Check(c.Close())
}

// incl is a group of some of another's members.
func (e *env) incl(g *mpi.Group, ranks ...int) *mpi.Group { return need(g.Incl(ranks...))(e) }

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
