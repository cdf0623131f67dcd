package mpi

import (
	"context"

	"github.com/ferrympi/ferry/pml"
)

// CollectiveHooks are hooks (WithHooks) that see collective operations too. Without them a
// collective costs one branch more.
type CollectiveHooks interface {
	pml.Hooks
	// Collective is called when a collective operation begins, on the caller's goroutine,
	// after its arguments were checked and before anything is sent. It may block. ctx is
	// the caller's, Background for a nonblocking operation.
	//
	// end is called once, when the operation is over, with its error. A nonblocking one
	// calls it from whatever goroutine completes the operation, with the engine's lock held:
	// then it must not call ferry, nor block.
	Collective(ctx context.Context, op CollectiveOp) (end func(error))
}

// CollectiveOp is an operation that CollectiveHooks see: Barrier to Alltoallv, Ibarrier to
// Ialltoallv, those among neighbors, and the creation of a communicator from another (dup, idup, split, create, cart, graph). Agree and Shrink are others, with
// a Seq of their own. Revoke is another one, in the member that calls it. Its Seq is 0.
type CollectiveOp struct {
	Comm *Comm
	Name string // as in errors: "allreduce", "iallreduce", "dup"
	// Bytes is the size of this member's part, as algorithms are chosen by it; 0 for
	// operations without data.
	Bytes int
	// Seq grows with each of the communicator's collectives that exchanges something, by one
	// or more, and is the same in all members: with Comm.ID it finds the operation in their
	// traces.
	Seq         uint32
	Nonblocking bool
}

// watchRevoke is watch for Revoke.
func (c *Comm) watchRevoke() (end func(error)) {
	return c.collective.watch(nil, "revoke", 0, 0, false)
}

// watch tells the hooks of an operation that begins. nil: nobody looks. Inside do or start.
func (k *collective) watch(ctx context.Context, op string, bytes int, seq uint32, nonblocking bool) (end func(error)) {
	hooks := k.comm().session.engine.collectiveHooks
	if hooks == nil {
		return nil
	}
	return hooks.Collective(background(ctx), CollectiveOp{Comm: k.comm(), Name: op, Bytes: bytes, Seq: seq, Nonblocking: nonblocking})
}
