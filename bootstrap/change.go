package bootstrap

import (
	"context"
	"fmt"
)

// A PsetOp is an operation on process sets. Add, Sub, Grow, Shrink and Replace begin a
// change of the job.
type PsetOp uint8

// The operations, with their results.
const (
	PsetUnion        PsetOp = iota + 1 // One set: the members of any operand, the first operand's first.
	PsetDifference                     // One set: the members of the first operand that no other one has.
	PsetIntersection                   // One set: the members of the first operand that all others have.
	PsetSplit                          // A set for each of PsetArgs.Sizes, in the order of the members.
	PsetAdd                            // The delta: new processes.
	PsetSub                            // The delta: members that leave.
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
	Name    string // Name of the new main set, or of the only result; empty: each result gets a name of its own.
	Sizes   []int  // Split: sizes of the results; they add up to the size of the set.
	Add     int    // Add, Grow, Replace: number of new processes, at least 1.
	Sub     int    // Sub, Shrink, Replace: number of members that leave; 0: exactly those that have ended.
	Partial bool   // Add, Grow, Replace: fewer new processes are enough, at least 1.
}

// A ChangeType is the kind of a change.
type ChangeType uint8

// The kinds.
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
	Type     ChangeType
	Delta    string // Name of the changing processes. Of a Replace: the joining ones in a process that joins, else the leaving ones.
	Main     string // Name of the new main set, if the request created one.
	Included bool   // The caller is a member of a delta.
}

// An Integration is the result of Changer.Integrate.
type Integration struct {
	Pset      string // The provided name, else Change.Main.
	Terminate bool   // The caller leaves the job: it closes its sessions and ends.
}

// A Changer grows and shrinks the job by operations on process sets (paper 003). Sets are immutable.
//
// The life of a change: an operation begins it on its operand, the associated set; members
// of that set learn of it by Query; all present members of the associated set and the delta
// call Integrate; one of them calls FinishChange. Changes of disjoint processes are
// independent. A change of processes that another change has is ErrPending, which names the
// other one. A death, and a deadline of Integrate, before the integration is complete undo the change: processes that
// it started are ended, and sets that it created are deleted.
//
// mpi://WORLD and mpi://SELF are the caller's own. Query, Integrate and FinishChange take mpi://SELF for the
// change whose delta has the caller. Names compare by PsetKey.
//
// Errors besides those of Client: ErrPset for a name that is unknown, deleted, reserved or
// taken, and for an operand without members; ErrRank for a number that the set does not
// have, with the size; ErrUnsupported over a limit (--max-ranks, and for a job 131,072 ranks, and 65,535 sets with
// 16,777,216 members and 8 MiB of names together at a time), with the number that fits, and where the launcher
// starts no processes; ErrProcFailed for an operand with members that have ended, where the operation needs all.
type Changer interface {
	// Operate makes sets, and returns their names as PsetOp lists them. Add, Grow and Replace return when the new
	// processes have been started with the program of the set's last present member.
	// A call that ends with an error leaves no set, change or process.
	Operate(ctx context.Context, op PsetOp, psets []string, args PsetArgs) ([]string, error)

	// DeletePset deletes a set and its data. A set without changes can be deleted by the process that created it,
	// and by any member once that process has ended. Sets of the command line and built-in sets stay. A later use of the name is ErrPset, which names
	// the deleting process. A delta that is the mpi://WORLD of running processes loses its name only, and stays their mpi://WORLD, with its data.
	DeletePset(ctx context.Context, name string) error

	// Query returns the unfinished change of a set, or else ChangeFailed if members have
	// ended, except by a change. ok is false if there is neither. With wait, it returns a change that this client has not
	// returned yet, and waits for one until ctx ends, without a deadline of its own.
	Query(ctx context.Context, pset string, wait bool) (c Change, ok bool, err error)

	// Integrate returns in all members when the last one has called it, with the same result. Any name of a delta names its change.
	// provide, if not empty, names a set for all members, and is not checked. Two
	// such calls are ErrPset in all members, with both names, and the change stays as it was. Withdrawal,
	// deadline and death are those of Fence; the last two undo the change, and calls after
	// that get the same error. A member that calls after the end of the change gets the result of the others,
	// until its next change; mpi://WORLD and mpi://SELF mean its unfinished change if there is one.
	// A requester that withdraws the change undoes it, which is ErrCanceled in all members.
	Integrate(ctx context.Context, delta, provide string) (Integration, error)

	// FinishChange ends an integrated change; ErrPending before. The server finishes an integrated change whose
	// requesting process has ended. A second call does nothing.
	FinishChange(ctx context.Context, delta string) error

	// PublishData stores a value under a key of a set, and copies it. It replaces an earlier value.
	PublishData(ctx context.Context, pset, key string, value []byte) error

	// LookupData returns the value of a key of a set. It waits for it, until ErrTimeout. The result is the caller's.
	LookupData(ctx context.Context, pset, key string) ([]byte, error)
}
