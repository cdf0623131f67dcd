package mpi

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// The errors of this package, for errors.Is. What is returned wraps them and
// says more. The comments name the MPI error classes (MPI-4.1 section 9.4).
var (
	ErrTruncate          = framework.ErrTruncate          // message longer than the receive buffer: MPI_ERR_TRUNCATE
	ErrRank              = framework.ErrRank              // rank or root out of range: MPI_ERR_RANK, MPI_ERR_ROOT
	ErrTag               = framework.ErrTag               // tag out of range: MPI_ERR_TAG
	ErrPset              = framework.ErrPset              // unknown process set: MPI_ERR_ARG
	ErrGroup             = framework.ErrGroup             // not a group that fits: MPI_ERR_GROUP
	ErrNoComm            = framework.ErrNoComm            // this process gets no communicator: MPI_COMM_NULL
	ErrBroken            = framework.ErrBroken            // an earlier collective failed half way
	ErrPending           = framework.ErrPending           // something is still in use: MPI_ERR_PENDING
	ErrClosed            = framework.ErrClosed            // used after Close, or used up: MPI_ERR_COMM, MPI_ERR_SESSION, MPI_ERR_REQUEST
	ErrCanceled          = framework.ErrCanceled          // the context was canceled
	ErrTimeout           = framework.ErrTimeout           // the context's or the library's deadline passed
	ErrConfig            = framework.ErrConfig            // a parameter, or a selection: MPI_ERR_INFO_VALUE
	ErrUnsupported       = framework.ErrUnsupported       // not possible here: MPI_ERR_UNSUPPORTED_OPERATION
	ErrType              = framework.ErrType              // an element type that holds pointers: MPI_ERR_TYPE
	ErrTransport         = framework.ErrTransport         // a transport failed: MPI_ERR_OTHER
	ErrProcFailed        = framework.ErrProcFailed        // a process failed: MPI_ERR_PROC_FAILED
	ErrProcFailedPending = framework.ErrProcFailedPending // MPI_ERR_PROC_FAILED_PENDING
	ErrRevoked           = framework.ErrRevoked           // MPI_ERR_REVOKED
	ErrTopology          = framework.ErrTopology          // MPI_ERR_TOPOLOGY, MPI_ERR_DIMS
	ErrPartition         = framework.ErrPartition         // invalid partition or number of partitions: MPI_ERR_ARG
)

// ProcFailedError says which ranks failed; errors.Is finds ErrProcFailed.
type ProcFailedError = framework.ProcFailedError

// TransportError says which transport failed, towards whom and doing what;
// errors.Is finds ErrTransport.
type TransportError = framework.TransportError

// MissingError says which processes did not come to a collective wire-up in
// time, or have failed; errors.Is finds ErrTimeout or ErrProcFailed.
type MissingError = framework.MissingError

// PendingError says that a context has ended while a send can be neither
// withdrawn nor finished: below some transports it may have matched already, and
// over shared memory a matched probe may have claimed it. The send goes on, and its
// buffer is the library's until Request is complete. errors.Is finds ErrPending, and what the context's end
// answers: its cause, and ErrTimeout or ErrCanceled.
type PendingError struct {
	Request Request
	cause   error
}

func (e *PendingError) Error() string { return e.cause.Error() + "; the send goes on" }

// Is reports whether target is ErrPending.
func (e *PendingError) Is(target error) bool { return target == ErrPending }

// Unwrap returns the error of the context that ended.
func (e *PendingError) Unwrap() error { return e.cause }

// ended gives an error of a context that has ended its sentinel: ErrTimeout or
// ErrCanceled. The cause stays inside. Any other error comes back as it is,
// except that a PML's *pml.PendingError becomes this package's.
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
