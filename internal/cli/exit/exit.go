// Package exit carries exit statuses from ferry's commands to its main
// function, as errors.
package exit

import (
	"errors"
	"fmt"
)

// The statuses that ferry chooses itself. Those of programs that it runs are
// passed on.
const (
	Failed        = 1   // anything else
	Usage         = 2   // the command line or the configuration makes no sense
	NotExecutable = 126 // as a shell says it
	NotFound      = 127
)

// Error is an error with an exit status. A nil Err says nothing more: what
// there was to say has been said.
type Error struct {
	Status int
	Err    error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Usagef is an error with status Usage.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// Status returns nil for 0, and else an error with that status and no words.
func Status(status int) error {
	if status == 0 {
		return nil
	}
	return &Error{Status: status}
}

// Of returns the exit status for err, and what is to be printed, if anything.
func Of(err error) (status int, message string) {
	var e *Error
	switch {
	case err == nil:
		return 0, ""
	case !errors.As(err, &e):
		return Failed, err.Error()
	case e.Err == nil:
		return e.Status, ""
	}
	return e.Status, err.Error()
}
