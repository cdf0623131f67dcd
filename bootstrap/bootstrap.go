// Package bootstrap is the contract between ferry and whatever started the
// process: who am I, who else is there, and how do we meet before any
// transport works. Implementations stand beside it: bootstrap/local speaks to
// `ferry run`, and serves a program that was started by itself.
//
// A Client never carries user messages. Every call that waits takes a context
// and also has a deadline of its own (parameter bootstrap.timeout), so that a
// member that never comes is an error that names it, and never a hang.
package bootstrap

import (
	"context"
	"log/slog"

	"github.com/ferrympi/ferry/framework"
)

// Component is what a bootstrap implementation registers. Its Probe says
// whether the environment of the process names a server of its kind.
type Component interface {
	framework.Component
	// Open connects and proves the process's identity to the server. It fails
	// when a launcher is named but can't be reached: a program started under a
	// launcher is never a silent singleton.
	Open(ctx context.Context, env Env) (Client, error)
}

// Env is what the assembly gives to Open.
type Env struct {
	Params any // what Component.Params returned, filled
	Logger *slog.Logger
}

// Identity says who this process is. It never changes.
type Identity struct {
	Proc      framework.Proc
	Size      int      // processes in mpi://WORLD
	LocalRank int      // position of this process in LocalRanks
	LocalSize int      // processes of the namespace on this node
	Locals    []uint32 // their ranks, ascending; the members of mpix://SHARED
	Dir       string   // a directory that belongs to the job, on this node; "" when there is none
	Singleton bool     // there is no launcher
}

// Constructed is the result of a group construct.
type Constructed struct {
	// ContextID is the same in all members, and no other construct of this job
	// ever gets it. It is never 0.
	ContextID uint64
	// Payloads holds what each member gave, in the order of the group. The
	// slices are the caller's.
	Payloads [][]byte
}

// A Client is one process's connection to its bootstrap server. All methods may
// be called concurrently.
//
// Errors: *framework.MissingError when members did not come in time or died
// (it says who); ErrTransport when the server is gone; ErrClosed after Close;
// the cause of ctx when that ended.
type Client interface {
	Identity() Identity

	// Put stores value under key in this process's name. It returns when the
	// value is on its way; a Get by anyone that starts after a later fence or
	// construct in which both took part sees it. value is copied.
	Put(ctx context.Context, key string, value []byte) error

	// Get returns what p stored under key. It waits until p has put it.
	Get(ctx context.Context, p framework.Proc, key string) ([]byte, error)

	// Fence returns when every member of group has called Fence with the same
	// group, in the same order, and the same tag. The caller must be a member.
	// The same tag may be used again at once.
	Fence(ctx context.Context, group []framework.Proc, tag string) error

	// Construct is a Fence that also agrees on a 64-bit context id and hands
	// every member's payload to all. Payloads are small (up to 64 KiB).
	// Concurrent constructs with different tags, or over different groups, do
	// not disturb one another.
	Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (Constructed, error)

	// Close ends the connection. Calls in progress return ErrClosed. A process
	// that exits without Close is reported to the others as failed, unless its
	// exit status is 0.
	Close() error
}

// The optional abilities: ask for each by framework.As.

// A Directory publishes values under names that the whole job sees.
type Directory interface {
	// Publish stores value under name. A name can be published once, until it
	// is withdrawn; a second time is an error.
	Publish(ctx context.Context, name string, value []byte) error
	Unpublish(ctx context.Context, name string) error
	// Lookup returns the value of name. If wait is set it waits until someone
	// publishes it; otherwise a missing name is ErrPset's sibling: ok is false.
	Lookup(ctx context.Context, name string, wait bool) (value []byte, ok bool, err error)
}

// PsetInfo describes a process set.
type PsetInfo struct {
	Name    string
	Members []framework.Proc
	Dynamic bool // it came to be after the job started
}

// A PsetSource knows process sets beyond WORLD, SELF and SHARED, which follow
// from Identity.
type PsetSource interface {
	Psets(ctx context.Context) ([]string, error)
	// Pset finds name without regard to case. ErrPset names what exists.
	Pset(ctx context.Context, name string) (PsetInfo, error)
}

// EventKind says what happened.
type EventKind uint8

const (
	ProcDied   EventKind = iota + 1 // a process ended without having closed its connection first, or by a signal
	ServerLost                      // the connection to the server broke
	Dump                            // the server asks for an Inspect dump on standard error
)

// Event is news from the server.
type Event struct {
	Kind   EventKind
	Proc   framework.Proc // ProcDied: who
	Reason string         // "signal: killed", "exit status 3"
}

// An EventSource delivers events.
type EventSource interface {
	// OnEvent calls f for each event from now on, and at once for each process
	// that is already known dead; one call at a time, in order, from a goroutine
	// of the client. f must not block, nor call the client. There is one f; a
	// second OnEvent replaces it, nil removes it.
	OnEvent(f func(Event))
}

// A Reporter accepts a named report for the launcher to print when the job
// ends (`ferry run --explain`, `--timing`).
type Reporter interface {
	Report(ctx context.Context, name string, body []byte) error
}
