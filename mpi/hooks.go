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
	// end is called once at the end of the operation, with its error. For a nonblocking operation, the goroutine that completes it calls end
	// with the engine's lock held. end then must not block or call this package.
	Collective(ctx context.Context, op CollectiveOp) (end func(error))
}

// CollectiveOp describes an operation for CollectiveHooks. These are Barrier to Alltoallv, Ibarrier to Ialltoallv, neighborhood operations, and the
// creation of a communicator from another (dup, idup, split, create, cart, graph). Agree and Shrink are included, with a separate sequence of Seq.
// Revoke is included in the member that calls it, with Seq 0.
type CollectiveOp struct {
	Comm *Comm
	// As in errors, for example "allreduce", "iallreduce" or "dup".
	Name string
	// Bytes is the size of this member's part, as algorithms are chosen by it; 0 for
	// operations without data.
	Bytes int
	// Seq increases by one or more with each of the communicator's collectives that exchanges messages, and is equal in all members. Together
	// with Comm.ID it identifies the operation in the members' traces.
	Seq         uint32
	Nonblocking bool
}

// watchRevoke is watch for Revoke.
func (c *Comm) watchRevoke() (end func(error)) {
	return c.watch(nil, "revoke", 0, 0, false)
}

// watch calls the hooks of an operation that begins. The result is nil without hooks.
func (c *Comm) watch(ctx context.Context, op string, bytes int, seq uint32, nonblocking bool) (end func(error)) {
	hooks := c.session.process.collectiveHooks
	if hooks == nil {
		return nil
	}
	return hooks.Collective(background(ctx), CollectiveOp{Comm: c, Name: op, Bytes: bytes, Seq: seq, Nonblocking: nonblocking})
}
