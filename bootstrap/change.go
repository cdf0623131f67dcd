package bootstrap

import (
	"context"
	"fmt"
)

// A PsetOp is an operation on process sets. Add, Sub, Grow, Shrink and Replace begin a
// change of the job.
type PsetOp uint8

// Operations and their results.
const (
	PsetUnion        PsetOp = iota + 1 // One set of the members of any operand, those of the first operand first.
	PsetDifference                     // One set of the members of the first operand that no other one has.
	PsetIntersection                   // One set of the members of the first operand that all others have.
	PsetSplit                          // A set for each of PsetArgs.Sizes, in the order of the members.
	PsetAdd                            // The delta of new processes.
	PsetSub                            // The delta of members that leave.
	PsetGrow                           // The delta of Add, and the new main set.
	PsetShrink                         // The delta of Sub, and the new main set.
	PsetReplace                        // The delta that leaves, the delta that joins, and the new main set.
)

var psetOps = [...]string{"", "union", "difference", "intersection", "split", "add", "sub", "grow", "shrink", "replace"}

// String returns the name of the operation in messages.
func (op PsetOp) String() string {
	if op > 0 && int(op) < len(psetOps) {
		return psetOps[op]
	}
	return fmt.Sprintf("PsetOp(%d)", uint8(op))
}

// PsetArgs are the arguments of an operation. Fields without meaning for it are ignored.
type PsetArgs struct {
	// Name of the new main set, or of the only result. If it is empty, each result gets a generated
	// name.
	Name string
	// Sizes of the results of Split. Their sum is the size of the set.
	Sizes []int
	// Number of new processes of Add, Grow and Replace, at least 1.
	Add int
	// Number of members that leave by Sub, Shrink and Replace. 0 means exactly those that have
	// ended.
	Sub int
	// Fewer new processes are enough for Add, Grow and Replace, at least 1.
	Partial bool
}

// A ChangeType is the kind of a change.
type ChangeType uint8

// Kinds of changes.
const (
	ChangeAdd     ChangeType = iota + 1 // The delta joins.
	ChangeSub                           // The delta leaves.
	ChangeReplace                       // One delta leaves, and another one joins.
	ChangeFailed                        // The delta has ended. It needs no Integrate and no FinishChange.
)

var changeTypes = [...]string{"", "add", "sub", "replace", "failed"}

// String returns the name of the kind in messages.
func (c ChangeType) String() string {
	if c > 0 && int(c) < len(changeTypes) {
		return changeTypes[c]
	}
	return fmt.Sprintf("ChangeType(%d)", uint8(c))
}

// A Change is a change of the processes of a set.
type Change struct {
	Type ChangeType
	// Name of the changing processes. For Replace these are the joining ones in a process that
	// joins, and otherwise the leaving ones.
	Delta string
	// Name of the new main set, if the request created one.
	Main string
	// The caller is a member of a delta.
	Included bool
}

// An Integration is the result of Changer.Integrate.
type Integration struct {
	// Name that a member provided, otherwise Change.Main.
	Pset string
	// The caller leaves the job. It closes its sessions and ends.
	Terminate bool
}

// A Changer grows and shrinks the job by operations on process sets (paper 003). Sets are
// immutable.
//
// An operation begins a change on its operand, the associated set. Members of that set receive it
// by Query. All present members of the associated set and the delta call Integrate, and one of them
// calls FinishChange. Changes of disjoint processes are independent. A change of processes that are
// in another change is ErrPending, with the name of the other one. A death, or a deadline of
// Integrate, before the integration is complete undoes the change. The processes that it started
// are ended, and the sets that it created are deleted.
//
// mpi://WORLD and mpi://SELF are the caller's own. Query, Integrate and FinishChange accept
// mpi://SELF for the change whose delta has the caller. Names compare by PsetKey.
//
// Errors besides those of Client are ErrPset for a name that is unknown, deleted, reserved or in
// use, and for an operand without members; ErrRank for a number that the set does not have, with
// the size; ErrUnsupported over a limit (--max-ranks, and for a job 131,072 ranks, and 65,535 sets
// with 16,777,216 members and 8 MiB of names together at a time), with the number that fits, and
// where the launcher starts no processes; and ErrProcFailed for an operand with ended members, if
// the operation needs all.
type Changer interface {
	// Operate makes sets, and returns their names as PsetOp lists them. Add, Grow and Replace
	// return once the new processes have started, with the program of the set's last present
	// member. Under other launchers than ferry run, they return once the launcher has accepted the
	// processes, which have the program of rank 0. A failed call leaves no set, change or process.
	Operate(ctx context.Context, op PsetOp, psets []string, args PsetArgs) ([]string, error)

	// DeletePset deletes a set and its data. A set without changes can be deleted by the process
	// that created it, and by any member once that process has ended. Sets of the command line and
	// built-in sets cannot be deleted. A later use of the name is ErrPset with the deleting
	// process. A delta that is the mpi://WORLD of running processes loses its name only, and remains
	// their mpi://WORLD with its data.
	DeletePset(ctx context.Context, name string) error

	// Query returns the unfinished change of a set, or ChangeFailed if members have ended other
	// than by a change. ok is false if there is neither. With wait, it returns a change that this
	// client has not returned yet, and waits for one until ctx ends, without a deadline of its own.
	Query(ctx context.Context, pset string, wait bool) (c Change, ok bool, err error)

	// Integrate returns in all members when the last one has called it, with the same result. Any
	// name of a delta names its change. provide, if not empty, names a set for all members, and is
	// not checked. Two such calls are ErrPset in all members, with both names, and the change is
	// unaffected. Withdrawal, deadline and death are those of Fence. The last two undo the change,
	// and later calls get the same error. A member that calls after the end of the change gets the
	// result of the others, until its next change. mpi://WORLD and mpi://SELF mean its unfinished
	// change if there is one. A requester that withdraws the change undoes it, which is ErrCanceled
	// in all members.
	Integrate(ctx context.Context, delta, provide string) (Integration, error)

	// FinishChange ends an integrated change, and returns ErrPending before. The server finishes an
	// integrated change whose requester has ended. A second call has no effect.
	FinishChange(ctx context.Context, delta string) error

	// PublishData stores a value under a key of a set, and copies it. It replaces an earlier value.
	PublishData(ctx context.Context, pset, key string, value []byte) error

	// LookupData returns the value of a key of a set. It waits for the value until ErrTimeout. The
	// caller owns the result.
	LookupData(ctx context.Context, pset, key string) ([]byte, error)
}
