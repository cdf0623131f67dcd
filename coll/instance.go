package coll

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/progress"
)

// Env is what an instance is opened with.
type Env struct {
	Member
	// Node reaches the members on this one's node; nil: no open transport shares memory.
	Node Node
}

// Node is what a member shares with those on its node, who are named by their ranks in the
// communicator. Where a process has several ranks (Shape.SharesProcs), the node is the process
// (package heap). Its methods are called from Open and Join.
type Node interface {
	// NewArea makes memory that the others may open: size bytes, zero. There may be no room.
	NewArea(size int) (*btl.Area, error)
	// OpenArea opens what a member has made, by the area's number, which is a peer's word.
	OpenArea(rank int, number uint32, size int) (*btl.Area, error)
	// Bell returns the bell of a member, who is awake or wakes when it is rung. release is
	// called when the bell is not used any more.
	Bell(rank int) (bell progress.RemoteBell, release func(), err error)
}

// Heap is an optional ability of a Node whose members are goroutines of one process. They share
// Go values besides areas.
type Heap interface {
	// Share returns the number under which the other members obtain the value until release is
	// called.
	Share(value any) (number uint32, release func())
	// Shared returns the value that a member shares under that number.
	Shared(rank int, number uint32) (any, error)
}

// Instance is what a component has for one communicator in one process: memory that the
// members share, as a rule. Members agree on whether they have it: if Open or Join fails
// in one of them, all do without the offer.
type Instance interface {
	// Card returns the bytes that the other members on this one's node need before they join, at most CardSize.
	Card() []byte
	// Join receives the cards of the members on this one's node (see Node), its own included, in the order of their ranks
	// (Shape.ProcsAsNodes, ByNode, Ranks). Their bytes are input of peers.
	Join(cards [][]byte) error
	// Agreed says that all members have joined, and that operations follow.
	Agreed()
	// Memory is what slot Shared of schedules stands for.
	Memory() []byte
	// Try does a step of kind Own, and reports whether that is over; otherwise it is called
	// again. It does not wait. Who changes what others may wait for rings their bells then,
	// and need not wait until they see it (progress.Lagging). An error ends the operation, and with it the communicator's
	// collectives. It comes with the engine's lock held, unless nobody else can call the
	// instance: one call follows the other in any case.
	Try(s *Step, c *Call) (over bool, err error)
	// Close gives everything back. No operation is under way, or will be; others' may be. It
	// may come without a Join, or without Agreed.
	Close()
}

// Call is a call of an operation, as its instance's steps see it.
type Call struct {
	// Turn counts the communicator's collectives, the same in all members; several may be
	// under way.
	Turn uint32
	// Asleep: who waits for the step sleeps, or is about to. It is not tried again soon, unless
	// somebody rings.
	Asleep bool
	Buffers
	Reducer
}

// Worker is an ability of an Instance whose schedules have steps of kind Work.
type Worker interface {
	// Work does a step of kind Work. It may take long, and call the program's functions, which may panic. It does
	// not wait. It comes without the engine's lock, unless the step touches few bytes and the
	// reduction is Quick. Steps of other calls may be tried at the same time.
	Work(s *Step, c *Call)
}

// Withdrawer is an optional ability of an Instance whose members use each other's buffers.
type Withdrawer interface {
	// Withdraw is called for a call that ends before its steps are complete. It reports whether
	// no other member uses the call's buffers, now and later. Until then the call does not
	// return, and Withdraw is called again. It does not wait. The members' collectives are broken. It
	// comes with or without the engine's lock.
	Withdraw(c *Call) bool
}

// Giver is an optional ability of an Instance. Its steps of kind Own, with the copies and combinations between them, may be tried in
// the calls Start and Wait of a persistent operation alone.
type Giver interface {
	// Gives reports whether other members may wait for a step of kind Own. The steps behind the last one that gives may stay
	// undone until the next operation.
	Gives(s *Step) bool
}

// Awaiter is an optional ability of an Instance.
type Awaiter interface {
	// Awaits returns the rank for which a step waits that was not over when it was tried
	// last, for people who look for who hangs. It comes with the engine's lock held.
	Awaits(s *Step) int
}

// CardSize is the most that a card may have, in bytes.
const CardSize = 63
