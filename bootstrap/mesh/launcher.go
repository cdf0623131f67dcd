package mesh

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// A Launcher is the part of a process's launcher that this package needs, its identity and an
// address book. No other promise of bootstrap.Client is expected from it. Its methods may be called
// concurrently. None of them waits for another process of the job, and each returns soon after the
// end of its context, because Close of a client waits for it.
//
// Optional interfaces of the value (framework.As) are bootstrap.Directory, bootstrap.PsetSource,
// bootstrap.NodeMapper, bootstrap.Reporter, Watcher, Exchange, Named, Spawner and Added. A Directory is a value of its
// own, because its Publish differs from the Launcher's, and its Lookup is called without wait. The
// client offers these too, with its own deadlines and size limits.
type Launcher interface {
	// Identity returns the identity of this process. LocalSize is 0 if the processes of the node
	// are unknown.
	Identity() bootstrap.Identity
	// Publish stores this process's entry, of up to MaxEntry bytes, under its name, and copies it.
	// It is called once in the life of a process, and never in an added process. Only processes of the
	// job may read it.
	Publish(ctx context.Context, entry []byte) error
	// Find returns the entry of p. ok is false while there is none. The caller owns the result. A
	// process that has left its launcher finds the entries that it found before, and gets
	// ErrLauncherLeft for any other.
	Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error)
	// Abort ends the job if the launcher can, and otherwise has no effect.
	Abort(ctx context.Context, status int, reason string) error
	// Close ends the use of the launcher, possibly for the rest of the process. The process may
	// open another client.
	Close() error
}

// A Watcher is a Launcher with events that the members cannot observe.
type Watcher interface {
	// Watch sets the callback for processes that the launcher reports as failed (PeerFailed, with a
	// nonce of 0 if unknown), for the loss of the launcher (ServerLost), and for its request of a
	// dump (Dump). Calls are possible until Watch(nil) has returned. f does not block.
	Watch(f func(bootstrap.Event))
}

// A Named is a Launcher with a name for errors, such as "mpirun" or "srun --mpi=pmix".
type Named interface {
	LauncherName() string
}

// ErrLauncherLeft is the error of Find in a process that has left its launcher, as some launchers
// require when the last client closes. The other process may exist, and may connect to this one.
var ErrLauncherLeft = errors.New("this process left its launcher when its last session closed, and can look up no other process")

// MaxEntry is the largest length of an entry, in bytes.
const MaxEntry = 2 << 10
