// Package exit is how ferry's commands end: it carries exit statuses to the main
// function, as errors, and knows the signals that end a command.
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

// The statuses that ferry chooses itself. Those of programs that it runs are
// passed on.
const (
	Failed        = 1   // anything else
	Usage         = 2   // the command line or the configuration makes no sense
	notExecutable = 126 // as a shell says it
	notFound      = 127
)

// Signals returns the signals that end a command in good order: what it has started ends
// first, and its files go. A hangup is none of them for a command that nohup(1) has started.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// HearPipe has writing to a standard output that nobody reads any more fail, in place of
// ending this process, which may have something to end first. The result takes it back.
func IgnoreBrokenPipe() func() {
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return func() { signal.Stop(pipe) }
}

// unread reports whether an error is that nobody reads standard output any more.
func isBrokenStdout(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return ok && failed.Path == os.Stdout.Name() && errors.Is(err, syscall.EPIPE)
}

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
// framework.ErrConfig is a matter of usage, whoever found it.
func Of(err error) (status int, message string) {
	if err == nil {
		return 0, ""
	}
	status = Failed
	e, own := errors.AsType[*Error](err)
	switch {
	case isBrokenStdout(err): // `ferry bench latency | head`: who has seen enough needs no message
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
