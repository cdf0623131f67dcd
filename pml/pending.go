package pml

// PendingError is what Comm.Send returns when its context has ended and the PML
// can neither withdraw the message nor say that it never will be received:
// below an MTL or UCX it may have matched already, and elsewhere a matched probe
// may have claimed it. The send goes on, unless its receiver gives it back after
// all; its buffer is the PML's until Request is complete, and Request is the
// caller's, as if Isend had returned it. errors.Is finds Cause.
type PendingError struct {
	Request *Request
	Cause   error // the context's
}

func (e *PendingError) Error() string { return "send can't be withdrawn: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *PendingError) Unwrap() error { return e.Cause }
