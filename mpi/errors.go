package mpi

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Errors of this package for errors.Is. Returned errors wrap them and have details. The comments name the MPI error classes (MPI-4.1 section 9.4).
var (
	ErrTruncate          = framework.ErrTruncate          // Message longer than the receive buffer (MPI_ERR_TRUNCATE).
	ErrRank              = framework.ErrRank              // Rank or root out of range (MPI_ERR_RANK, MPI_ERR_ROOT).
	ErrTag               = framework.ErrTag               // Tag out of range (MPI_ERR_TAG).
	ErrPset              = framework.ErrPset              // Unknown process set (MPI_ERR_ARG).
	ErrGroup             = framework.ErrGroup             // Group that is invalid for the call (MPI_ERR_GROUP).
	ErrNoComm            = framework.ErrNoComm            // No communicator for this process (MPI_COMM_NULL).
	ErrBroken            = framework.ErrBroken            // Collectives of the communicator are broken.
	ErrPending           = framework.ErrPending           // Operation or resource in use (MPI_ERR_PENDING).
	ErrClosed            = framework.ErrClosed            // Use after Close, or of an inactive request (MPI_ERR_COMM, MPI_ERR_SESSION, MPI_ERR_REQUEST).
	ErrCanceled          = framework.ErrCanceled          // Context canceled.
	ErrTimeout           = framework.ErrTimeout           // Deadline of the context or of the library passed.
	ErrConfig            = framework.ErrConfig            // Invalid parameter or selection (MPI_ERR_INFO_VALUE).
	ErrUnsupported       = framework.ErrUnsupported       // Not supported by this machine, launcher or PML (MPI_ERR_UNSUPPORTED_OPERATION).
	ErrType              = framework.ErrType              // Element type with pointers (MPI_ERR_TYPE).
	ErrTransport         = framework.ErrTransport         // Failure of a transport (MPI_ERR_OTHER).
	ErrProcFailed        = framework.ErrProcFailed        // Failure of a process (MPI_ERR_PROC_FAILED).
	ErrProcFailedPending = framework.ErrProcFailedPending // MPI_ERR_PROC_FAILED_PENDING
	ErrRevoked           = framework.ErrRevoked           // MPI_ERR_REVOKED
	ErrTopology          = framework.ErrTopology          // MPI_ERR_TOPOLOGY, MPI_ERR_DIMS
	ErrPartition         = framework.ErrPartition         // Invalid partition or number of partitions (MPI_ERR_ARG).
)

// ProcFailedError has the failed ranks. It matches ErrProcFailed.
type ProcFailedError = framework.ProcFailedError

// TransportError has the failed transport, the peer and the operation. It matches ErrTransport.
type TransportError = framework.TransportError

// MissingError has the processes that did not join a collective wire-up in time, or have failed. It matches ErrTimeout or ErrProcFailed.
type MissingError = framework.MissingError

// PendingError reports that a context has ended while a send can be neither withdrawn nor completed. Below some transports the message may have
// matched, and over shared memory a matched probe may have claimed it. The send continues, and its buffer belongs to the library until Request is
// complete. The error matches ErrPending, the cause of the context, and ErrTimeout or ErrCanceled.
type PendingError struct {
	Request Request
	cause   error
}

func (e *PendingError) Error() string { return e.cause.Error() + "; the send goes on" }

// Is reports whether target is ErrPending.
func (e *PendingError) Is(target error) bool { return target == ErrPending }

// Unwrap returns the error of the context that ended.
func (e *PendingError) Unwrap() error { return e.cause }

// ended wraps the error of a context that has ended with ErrTimeout or ErrCanceled, and converts a *pml.PendingError into a PendingError. Other errors
// are returned unchanged.
func ended(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*pml.PendingError](err); ok {
		return &PendingError{Request{p.Request, p.Request.Generation()}, ended(ctx, op, p.Cause)}
	}
	return framework.Ended(ctx, op, err)
}

// background replaces a nil context for callees that need one.
func background(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
