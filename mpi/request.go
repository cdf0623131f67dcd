package mpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Request is an operation in progress (MPI-4.1 section 3.7). It is a value and may be copied. A Wait or Test that returns its completion, or Free,
// consumes the operation. All copies return ErrClosed from then on. The zero Request is inactive. Wait and Test of it return at once with the Status
// {AnySource, AnyTag, 0}.
type Request struct {
	pmlRequest *pml.Request
	generation uint32
}

// started returns the handle of a started operation.
func started(r *pml.Request, err error) (Request, error) {
	if err != nil {
		return Request{}, err
	}
	return Request{r, r.Generation()}, nil
}

// Wait blocks until the operation is complete, and returns its result (MPI_Wait). The end of ctx ends only the wait. The operation continues, and the
// request can be waited for again. After the failure of a member, the wait for a receive from AnySource without a match returns ErrProcFailedPending
// (AckFailed), and the request also stays active.
func (q Request) Wait(ctx context.Context) (Status, error) {
	if q.pmlRequest == nil {
		return noMessage(), nil
	}
	st, err := q.pmlRequest.Wait(ctx, q.generation)
	if err != nil {
		return Status(st), requestError(ctx, err)
	}
	return Status(st), nil
}

// requestError puts an error that package progress or the context made in this
// package's terms.
func requestError(ctx context.Context, err error) error {
	if errors.Is(err, progress.ErrBusy) {
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return ended(ctx, "wait", err)
}

// Test is Wait without blocking (MPI_Test). It returns false while the operation is pending, with ErrProcFailedPending if Wait returns that. It makes
// progress.
func (q Request) Test() (Status, bool, error) {
	if q.pmlRequest == nil {
		return noMessage(), true, nil
	}
	st, done, err := q.pmlRequest.Test(q.generation)
	return Status(st), done, err
}

// Status is Test that leaves the request as it is (MPI_Request_get_status).
func (q Request) Status() (Status, bool, error) {
	if q.pmlRequest == nil {
		return noMessage(), true, nil
	}
	st, done, err := q.pmlRequest.Peek(q.generation)
	return Status(st), done, err
}

// Cancel withdraws the operation if it has not matched (MPI_Cancel). Wait is still required, and returns a Status with Canceled set and no error. After
// the match, Cancel has no effect. It returns ErrClosed for a consumed or inactive request, and ErrUnsupported for a collective.
func (q Request) Cancel() error {
	if q.pmlRequest == nil {
		return errInactive()
	}
	return q.pmlRequest.Cancel(q.generation)
}

// Free frees the request (MPI_Request_free). The operation continues and completes without a report, and the time when its buffer can be reused is not
// known. Free returns ErrClosed for a consumed or inactive request.
func (q Request) Free() error {
	if q.pmlRequest == nil {
		return errInactive()
	}
	return q.pmlRequest.Free(q.generation)
}

func errInactive() error { return fmt.Errorf("%w: the request is inactive", ErrClosed) }

// nullOwner creates requests that are complete at the beginning, such as those of operations with
// ProcNull. They are recycled like a PML's. Guarded by the engine's lock.
type nullOwner struct {
	engine       *progress.Engine
	freeRequests []*nullRequest
}

type nullRequest struct {
	pml.Request
	owner *nullOwner
}

func (o *nullOwner) request(st Status) Request {
	o.engine.Lock()
	defer o.engine.Unlock()
	var r *nullRequest
	if last := len(o.freeRequests) - 1; last >= 0 {
		r, o.freeRequests = o.freeRequests[last], o.freeRequests[:last]
	} else {
		r = &nullRequest{owner: o}
		r.Init(o.engine, r)
	}
	r.Start()
	r.Request.Status = pml.Status(st)
	r.Finish()
	return Request{&r.Request, r.Generation()}
}

// Cancel comes too late always.
func (r *nullRequest) Cancel() {}

// Release takes the request back.
func (r *nullRequest) Release() { r.owner.freeRequests = append(r.owner.freeRequests, r) }

// First returns nil, because the request is never waited for.
func (r *nullRequest) First() progress.Source { return nil }
