package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// errUnknownFailure is wrapped by the error of an unknown failure code.
var errUnknownFailure = errors.New("unknown failure")

// FailureError returns the error for f, the answer to call op with name. waitErr is the reason if
// the caller's wait has ended, and otherwise nil. ok is false for an invalid failure, and err then
// describes it.
func FailureError(id bootstrap.Identity, op, name string, f wire.FailureBody, waitErr error) (err error, ok bool) {
	switch f.Code {
	case wire.CodeMissing:
		err := error(&framework.MissingError{Op: op, Tag: name, Missing: id.Procs(f.Missing), Failed: id.Procs(f.Failed)})
		if f.Text != "" {
			err = fmt.Errorf("%w: %s", err, f.Text)
		}
		return err, true
	case wire.CodeWithdrawn:
		cause := cmp.Or(waitErr, framework.ErrCanceled)
		if f.Text != "" {
			cause = fmt.Errorf("%w: %s", cause, f.Text)
		}
		return withdrawnError(op, name, cause, id.Procs(f.Missing)), true
	}
	sentinel, ok := map[wire.Code]error{
		wire.CodeGroup:        framework.ErrGroup,
		wire.CodeRank:         framework.ErrRank,
		wire.CodePublished:    bootstrap.ErrPublished,
		wire.CodeNotPublished: bootstrap.ErrNotPublished,
		wire.CodePset:         framework.ErrPset,
		wire.CodeLimit:        framework.ErrUnsupported,
		wire.CodePending:      framework.ErrPending,
	}[f.Code]
	if !ok {
		return fmt.Errorf("%w %d: %s", errUnknownFailure, f.Code, f.Text), false
	}
	if f.Text != "" {
		sentinel = fmt.Errorf("%w: %s", sentinel, f.Text)
	}
	return OpError(op, name, sentinel), true
}

// withdrawnError is the error of a call that its caller withdrew because of waitErr.
func withdrawnError(op, name string, waitErr error, absent []framework.Proc) error {
	if len(absent) == 0 {
		return OpError(op, name, waitErr)
	}
	if errors.Is(waitErr, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", waitErr, &framework.MissingError{Op: op, Tag: name, Missing: absent})
	}
	// MissingError is not wrapped, because no deadline has passed.
	return fmt.Errorf("bootstrap: %s %q: %w; missing: %v", op, name, waitErr, absent)
}

// ReportedDeadError is the error of a process that was reported dead.
func ReportedDeadError(self framework.Proc, reason string) error {
	return fmt.Errorf("%w: %s, which is this process, was reported dead: %s", framework.ErrProcFailed, self, reason)
}

// OpError adds the call to err.
func OpError(op, name string, err error) error {
	if len(name) > bootstrap.MaxName {
		name = name[:32] + "..."
	}
	return fmt.Errorf("bootstrap: %s %q: %w", op, name, err)
}
