package coll

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/progress"
)

// Env is the environment of an instance.
type Env struct {
	Member
	// Node has the members on this one's node. It is nil if no open transport shares memory.
	Node Node
}

// Node gives a member access to those on its node, which are identified by their ranks in the
// communicator. Where a process has several ranks (Shape.HasSharedProcs), the node is the process
// (package heap). Open and Join call its methods.
type Node interface {
	// NewArea allocates zeroed memory of size bytes that the others may open. It fails if the node
	// has too little memory.
	NewArea(size int) (*btl.Area, error)
	// OpenArea opens the memory of a member by its number, which is untrusted input of that peer.
	OpenArea(rank int, number uint32, size int) (*btl.Area, error)
	// Bell returns the bell of a member, which is awake or wakes when it is rung. The caller calls
	// release after the last use.
	Bell(rank int) (bell progress.RemoteBell, release func(), err error)
}

// Heap is an optional ability of a Node whose members are goroutines of one process. They share Go
// values in addition to memory.
type Heap interface {
	// Share registers a value for the other members until the call of release.
	Share(value any) (number uint32, release func())
	// Shared returns the value that a member has registered under that number.
	Shared(rank int, number uint32) (any, error)
}

// Instance is a component's state for one communicator in one process, usually memory that the
// members share. If Open or Join fails in one member, no member uses the offer.
type Instance interface {
	// Card returns at most CardSize bytes that the other members on this one's node need to join.
	Card() []byte
	// Join receives the cards of all members on this one's node, in the order of their ranks
	// (Shape.ProcsAsNodes, ByNode, Ranks). They are untrusted input.
	Join(cards [][]byte) error
	// Activate is called when all members have joined. Operations follow.
	Activate()
	// Memory returns the memory of slot Shared of schedules.
	Memory() []byte
	// PollStep polls a step of kind Own and reports whether it is complete. It does not block. An
	// instance that changes state for which others may wait rings their bells, without a barrier
	// (progress.Lagging). An error ends the operation and breaks the communicator's collectives.
	// Calls are serialized. The engine's lock is held unless no other goroutine can call the
	// instance.
	PollStep(s *Step, c *Call) (done bool, err error)
	// Close releases all resources. No operation of this member is pending, but those of others may
	// be. It may follow Open without a Join, and Join without Activate.
	Close()
}

// Call is a call of an operation with its memory.
type Call struct {
	// Sequence is the number of the call among the communicator's collectives, equal in all
	// members. Several calls may be pending.
	Sequence uint32
	// IsWaiterAsleep is set if the waiter of the step sleeps or is about to. The step is not polled
	// again soon unless its bell rings.
	IsWaiterAsleep bool
	Buffers
	Reducer
}

// Worker is an optional ability of an Instance whose schedules have steps of kind Work.
type Worker interface {
	// Work executes a step of kind Work. It may take long and call user functions, which may panic.
	// It does not wait for other members. The engine's lock is held only if the step touches few
	// bytes and Reducer.IsQuick is set. Steps of other calls may be polled at the same time.
	Work(s *Step, c *Call)
}

// Withdrawer is an optional ability of an Instance whose members use each other's buffers.
type Withdrawer interface {
	// Withdraw is called for a call that ends before its steps are complete. It reports whether no
	// other member uses the call's buffers, now or later. The caller polls it, and returns ErrPending
	// after a time limit. It does not block. The communicator's collectives are broken. The engine's
	// lock may be held.
	Withdraw(c *Call) bool
}

// Notifier is an optional ability of an Instance whose steps of kind Own, with the copies and
// combinations between them, may all be polled in Start and Wait of a persistent operation.
type Notifier interface {
	// IsAwaitedByPeers reports whether other members may wait for a step of kind Own. The steps after the last
	// such step may remain pending until the next operation.
	IsAwaitedByPeers(s *Step) bool
}

// BlockReporter is an optional ability of an Instance.
type BlockReporter interface {
	// AwaitedRank returns the rank for which a pending step waits, for diagnostics. The engine's lock is
	// held.
	AwaitedRank(s *Step) int
}

// CardSize is the maximum size of a card in bytes.
const CardSize = 63
