// Package exit has the exit statuses of ferry's commands, as errors, and the signals that end a command.
package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/framework"
)

// Statuses of ferry's own errors. Statuses of programs are passed on.
const (
	Failed        = 1   // Any other error.
	Usage         = 2   // Invalid command line or configuration.
	notExecutable = 126 // As in a shell.
	notFound      = 127
)

// Signals returns the signals that end a command after it has ended its processes and removed its files. Under nohup(1), a
// hangup is not among them.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// IgnoreBrokenPipe turns SIGPIPE into a write error until the result is called, so that a command can end its
// processes first.
func IgnoreBrokenPipe() func() {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return func() { signal.Stop(pipe) }
}

// isBrokenStdout reports whether an error is a closed reader of standard output.
func isBrokenStdout(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return ok && failed.Path == os.Stdout.Name() && errors.Is(err, syscall.EPIPE)
}

// An Error is an error with an exit status. With a nil Err, everything has been printed.
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

// Usagef returns an error with status Usage.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// Status returns an error with that status and without a message, or nil for 0.
func Status(status int) error {
	if status == 0 {
		return nil
	}
	return &Error{Status: status}
}

// Of returns the exit status for err, and the message to print or "". Any framework.ErrConfig has status Usage.
func Of(err error) (status int, message string) {
	if err == nil {
		return 0, ""
	}
	status = Failed
	e, own := errors.AsType[*Error](err)
	switch {
	case isBrokenStdout(err): // As in `ferry bench latency | head`.
		return 128 + int(syscall.SIGPIPE), ""
	case own && e.Err == nil:
		return e.Status, ""
	case own:
		status = e.Status
	case errors.Is(err, framework.ErrConfig):
		status = Usage
	case errors.Is(err, launch.ErrNotFound):
		status = notFound
	case errors.Is(err, launch.ErrNotExecutable):
		status = notExecutable
	}
	return status, err.Error()
}
