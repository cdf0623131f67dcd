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

// errUnknownFailure is inside the error of a failure that has no code of ours.
var errUnknownFailure = errors.New("unknown failure")

// Error makes an error of f, the answer to a call. op and name are what was called, and
// waitErr is why the caller's wait ended, nil if it did not end by itself. ok is false for
// a failure that makes no sense; err says what it is.
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

// withdrawn is the error of a call that its caller has given up, because of waitErr.
func withdrawnError(op, name string, waitErr error, absent []framework.Proc) error {
	if len(absent) == 0 {
		return OpError(op, name, waitErr)
	}
	if errors.Is(waitErr, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", waitErr, &framework.MissingError{Op: op, Tag: name, Missing: absent})
	}
	// Not wrapped: a caller that cancels did not run into a deadline.
	return fmt.Errorf("bootstrap: %s %q: %w; not there yet: %v", op, name, waitErr, absent)
}

// ReportedDeadError is the error of a process that was reported dead.
func ReportedDeadError(self framework.Proc, reason string) error {
	return fmt.Errorf("%w: %s, which is this process, was reported dead: %s", framework.ErrProcFailed, self, reason)
}

// OpError says which call err ended.
func OpError(op, name string, err error) error {
	if len(name) > bootstrap.MaxName {
		name = name[:32] + "..."
	}
	return fmt.Errorf("bootstrap: %s %q: %w", op, name, err)
}
