package meet

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// A Launcher is what meet takes of whatever started the process: who it is, and an
// address book. Every launcher has that much; none keeps the promises of
// bootstrap.Client. Its methods may be called concurrently. None of them waits for
// another process of the job, and each returns soon when its context has ended: Close of a
// client waits for that.
//
// What else a launcher can do its value, or what that unwraps to (framework.As), may have:
// bootstrap.Directory (whose Lookup is never asked to wait, and whose Publish is another
// one than the Launcher's: so it is a value of its own), bootstrap.PsetSource,
// bootstrap.NodeMapper, bootstrap.Reporter, Watcher, and Exchange. The client has it then, with its own deadlines and
// limits of size.
type Launcher interface {
	// Identity says who this process is. Locals, and what follows from it, may be unknown:
	// then LocalSize is 0.
	Identity() bootstrap.Identity
	// Publish stores this process's entry, of up to MaxEntry bytes, under its name. It is
	// called once in the life of a process; entry is copied. Who can read it is of the job.
	Publish(ctx context.Context, entry []byte) error
	// Find returns what p has published; ok is false as long as there is nothing. The result
	// is the caller's. A process that has left its launcher finds the entries that it found
	// before, and gets ErrLauncherLeft for any other.
	Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error)
	// Abort ends the job, where the launcher can, and otherwise does nothing.
	Abort(ctx context.Context, status int, reason string) error
	// Close ends the use of the launcher, which the process may leave for good. It may open a
	// client again.
	Close() error
}

// A Watcher is a Launcher that hears of what meet can't see by itself.
type Watcher interface {
	// Watch has f called for each process that the launcher knows to have failed (ProcDied;
	// the nonce may be 0), when the launcher is lost (ServerLost), and when it asks for a dump
	// (Dump). Calls may come at any time, and until Watch(nil) has returned. f does not wait.
	Watch(f func(bootstrap.Event))
}

// ErrLauncherLeft is the error of Find in a process that has left its launcher, as some
// launchers require when the last client closes. The other process may exist, and connect to
// this one.
var ErrLauncherLeft = errors.New("this process left its launcher when its last session closed, and can look up no other process")

// MaxEntry is the most that an entry takes.
const MaxEntry = 2 << 10
