package framework

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Sentinels of ferry's public interface, which package mpi re-exports. Returned errors match them with errors.Is, and have details. The comment is
// the MPI error class (MPI-4.1 section 9.4).
var (
	ErrTruncate          = errors.New("message longer than the receive buffer") // MPI_ERR_TRUNCATE
	ErrRank              = errors.New("rank out of range")                      // MPI_ERR_RANK, MPI_ERR_ROOT
	ErrTag               = errors.New("tag out of range")                       // MPI_ERR_TAG
	ErrPset              = errors.New("unknown process set")                    // MPI_ERR_ARG
	ErrGroup             = errors.New("invalid group")                          // MPI_ERR_GROUP
	ErrNoComm            = errors.New("no communicator for this process")       // MPI_COMM_NULL
	ErrBroken            = errors.New("collectives of this communicator are broken")
	ErrPending           = errors.New("operation still pending") // MPI_ERR_PENDING
	ErrClosed            = errors.New("use after close")         // MPI_ERR_COMM, MPI_ERR_SESSION, MPI_ERR_REQUEST
	ErrCanceled          = errors.New("operation canceled")
	ErrTimeout           = errors.New("deadline exceeded")
	ErrConfig            = errors.New("configuration")                 // MPI_ERR_INFO_VALUE
	ErrUnsupported       = errors.New("not supported")                 // MPI_ERR_UNSUPPORTED_OPERATION
	ErrType              = errors.New("element type holds pointers")   // MPI_ERR_TYPE
	ErrTransport         = errors.New("transport failed")              // MPI_ERR_OTHER
	ErrProcFailed        = errors.New("process failed")                // MPI_ERR_PROC_FAILED
	ErrProcFailedPending = errors.New("a potential sender has failed") // MPI_ERR_PROC_FAILED_PENDING
	ErrRevoked           = errors.New("communicator revoked")          // MPI_ERR_REVOKED
	ErrTopology          = errors.New("invalid topology")              // MPI_ERR_TOPOLOGY, MPI_ERR_DIMS
	ErrPartition         = errors.New("invalid partition")             // MPI_ERR_ARG
)

// ProcFailedError has the failed processes. It matches ErrProcFailed.
type ProcFailedError struct {
	// In the communicator of the failed call.
	Ranks []int
	// JobRanks are the ranks of these processes in their job, as ferry run and launchers number them. Nil if unknown.
	JobRanks []int
	Cause    string
}

func (e *ProcFailedError) Error() string {
	var names []string
	for i := 0; i < len(e.Ranks); {
		end := i + 1 // End of the ranks in the process of rank i.
		name := fmt.Sprint(e.Ranks[i])
		if i < len(e.JobRanks) {
			for ; end < min(len(e.Ranks), len(e.JobRanks)) && e.JobRanks[end] == e.JobRanks[i]; end++ {
				name += fmt.Sprintf(", %d", e.Ranks[end])
			}
			if end > i+1 || e.JobRanks[i] != e.Ranks[i] {
				name += fmt.Sprintf(" (rank %d of the job)", e.JobRanks[i])
			}
		}
		names = append(names, name)
		i = end
	}
	msg := "process failed: rank " + strings.Join(names, ", ")
	if e.Cause != "" {
		msg += " (" + e.Cause + ")"
	}
	return msg
}

// Is reports whether target is ErrProcFailed.
func (e *ProcFailedError) Is(target error) bool { return target == ErrProcFailed }

// TransportError has the component, the peer and the operation that failed. It matches ErrTransport and the errors that Err wraps.
type TransportError struct {
	// For example "btl shm".
	Component string
	// Empty if the failure concerns no particular peer.
	Peer string
	// For example "connect".
	Op  string
	Err error
}

func (e *TransportError) Error() string {
	s := e.Component + ": " + e.Op
	if e.Peer != "" {
		s += " with " + e.Peer
	}
	return s + ": " + e.Err.Error()
}

// Is reports whether target is ErrTransport.
func (e *TransportError) Is(target error) bool { return target == ErrTransport }

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

// MissingError is returned by a fence or a group construct after its deadline. It names the members that did not join. It matches ErrTimeout, and
// ErrProcFailed if a member has failed.
type MissingError struct {
	// "fence" or "group construct".
	Op      string
	Tag     string
	Missing []Proc
	// Members that are known to have failed.
	Failed []Proc
}

func (e *MissingError) Error() string {
	var why []string
	if len(e.Missing) > 0 {
		why = append(why, "deadline passed; missing: "+ProcList(e.Missing, maxListedProcs))
	}
	if len(e.Failed) > 0 {
		why = append(why, "failed: "+ProcList(e.Failed, maxListedProcs))
	}
	return fmt.Sprintf("bootstrap: %s %q: %s", e.Op, e.Tag, strings.Join(why, "; "))
}

// Is reports whether target is ErrTimeout, or ErrProcFailed if a member has failed.
func (e *MissingError) Is(target error) bool {
	return target == ErrTimeout && len(e.Missing) > 0 || target == ErrProcFailed && len(e.Failed) > 0
}

// maxListedProcs is the length of a list in a message.
const maxListedProcs = 16

// ProcList names at most most processes, and the number of the others.
func ProcList(ps []Proc, most int) string {
	var s []string
	for _, p := range ps[:min(len(ps), most)] {
		s = append(s, p.String())
	}
	if more := len(ps) - most; more > 0 {
		s = append(s, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(s, ", ")
}

// Ended wraps the error of an operation whose context has ended with ErrTimeout or ErrCanceled. Other errors are returned unchanged.
func Ended(ctx context.Context, op string, err error) error {
	if err == nil || ctx == nil || ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	sentinel := ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		sentinel = ErrTimeout
	}
	return fmt.Errorf("%s: %w: %w", op, sentinel, err)
}
