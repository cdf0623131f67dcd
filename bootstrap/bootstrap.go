// Package bootstrap is the contract between ferry and the launcher of a process. It covers the
// identity of the process, the other processes, and the exchanges that precede any transport.
// bootstrap/local implements it for `ferry run` and for a process without a launcher. With
// bootstrap/mesh the processes of any other launcher serve one another.
//
// A Client carries no user messages. Every call that waits takes a context and also has a deadline
// (Env.Timeout, parameter bootstrap.timeout), so that an absent member causes an error with its
// name and never a hang.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Component is a bootstrap implementation. Its Probe reports whether the environment of the process
// names a server of its kind.
type Component interface {
	framework.Component
	// Open connects and proves the process's identity to the server. It fails if the environment
	// names a launcher that cannot be reached, so a process under a launcher is never silently a
	// singleton.
	Open(ctx context.Context, env Env) (Client, error)
}

// Env has the arguments of Open.
type Env struct {
	// Result of Component.Params with its values set.
	Params any
	// nil discards.
	Logger *slog.Logger
	// Limit of each waiting call. 0 means DefaultTimeout.
	Timeout time.Duration

	// Time from the last sign of a host to the report of its loss. 0 means DefaultHostTimeout.
	HostTimeout time.Duration
	// Time for which a process may leave queries unanswered. 0 means that none are sent.
	ProcessTimeout time.Duration

	// Largest number of processes of the job at a time. 0 means four times the first Size in
	// changes, and Identity.MaxSize is then Size. bootstrap/local takes it from its launcher.
	MaxRanks int
}

// DefaultTimeout is the default of Env.Timeout. A rank may load its program from a slow file
// system.
const DefaultTimeout = 60 * time.Second

// DefaultHostTimeout is the default of Env.HostTimeout. It equals that of btl.tcp.retry_timeout.
const DefaultHostTimeout = 30 * time.Second

// RevokePatience limits the time of Revoker.Revoke if the other end of a connection does not read.
const RevokePatience = time.Second

// Limits, in bytes, that every implementation supports. A call beyond them returns ErrUnsupported
// and sends nothing.
const (
	MaxName    = 1 << 10  // Key, tag, published name or name of a process set.
	MaxPayload = 64 << 10 // Payload of one member of a construct, or of a note.
	MaxValue   = 1 << 20  // Value that is put, published or reported.
)

// Errors of a Directory.
var (
	ErrPublished    = errors.New("name is already published")
	ErrNotPublished = errors.New("name is not published")
)

// Identity identifies this process. It never changes.
type Identity struct {
	Proc framework.Proc
	// Rank of the first process in mpi://WORLD. It is above 0 in a process that was added to a
	// running job.
	FirstRank int
	// Number of processes in mpi://WORLD, which has ranks FirstRank to FirstRank+Size-1.
	Size int
	// Largest number of processes that the job is expected to have at a time. It equals Size if no
	// growth is expected.
	MaxSize int
	// Index of this process in LocalRanks.
	LocalRank int
	// Number of processes of the namespace on this node. 0 if unknown.
	LocalSize int
	// Their ranks, ascending, which are the members of mpix://SHARED. Empty if unknown.
	LocalRanks []uint32
	// Map of the nodes of mpi://WORLD. It is empty if it is unknown, or if a NodeMapper returns it.
	Nodes NodeMap
	// Processes of different nodes of Nodes share no memory, although they are on one machine.
	IsDivided bool
	// Directory of the job on this node, or "".
	JobDir string
	// There is no launcher.
	IsSingleton bool
}

// MaxLocal returns the largest number of processes that the job is expected to have on this node
// at a time, for values that are fixed when a session opens. It is 0 if the processes of the node
// are unknown. progress.Engine.NodeProcs is the present number.
func (id Identity) MaxLocal() int {
	if id.LocalSize == 0 {
		return 0
	}
	return id.LocalSize + max(id.MaxSize-id.Size, 0)
}

// IsSpread reports whether processes of mpi://WORLD are known to be on other machines.
func (id Identity) IsSpread() bool {
	return id.LocalSize > 0 && id.LocalSize < id.Size && !id.IsDivided
}

// MaxOnMachine is MaxLocal for the processors, which all nodes of a divided machine share.
func (id Identity) MaxOnMachine() int {
	if id.IsDivided {
		return max(id.Size, id.MaxSize)
	}
	return id.MaxLocal()
}

// MachineRanks returns the ranks of mpi://WORLD that share the processors of this machine, as far as
// they are known, ascending.
func (id Identity) MachineRanks() []uint32 {
	if !id.IsDivided {
		return id.LocalRanks
	}
	var ranks []uint32
	for i := range id.Size {
		ranks = append(ranks, uint32(id.FirstRank+i))
	}
	return ranks
}

// NodeLabel returns a text that differs between the nodes of a divided machine, and "" on any other
// machine.
func (id Identity) NodeLabel() string {
	node, ok := id.Nodes.Node(id.Proc.Rank)
	if !id.IsDivided || !ok {
		return ""
	}
	return fmt.Sprintf("n%d", node)
}

// IsJobReporter reports whether this process performs the tasks that one process performs for the
// whole job, such as warnings. Added processes leave these to the initial ones.
func (id Identity) IsJobReporter() bool { return id.FirstRank == 0 && id.LocalRank == 0 }

// Constructed is the result of a group construct.
type Constructed struct {
	// ContextID is the same in all members and unique in this job. It is never 0.
	ContextID uint64
	// Payloads has the payload of each member in the order of the group. The caller owns the
	// slices.
	Payloads [][]byte
}

// A Client is the connection of a process to its bootstrap server. All methods may be called
// concurrently.
//
// Errors are *framework.MissingError with the members that were late or have died; ErrTransport if
// the server is lost; ErrClosed after Close; ErrProcFailed if this process was reported dead (see
// EventSource); the cause of ctx when that has ended, which may be wrapped in
// *framework.MissingError; ErrGroup for a group that is empty, has a member twice, has a process of
// another job, or lacks the caller; and ErrUnsupported over a limit above.
type Client interface {
	Identity() Identity

	// Put stores value under key for this process, and copies it. It returns once the value is on
	// its way. A Get that starts after a later fence or construct of both processes finds it.
	Put(ctx context.Context, key string, value []byte) error

	// Get returns the value of p under key. It waits until p has put it, and fails if p ends
	// before. In a job that changes, the values of an ended process may be dropped, and Get fails
	// too. The caller owns the result.
	Get(ctx context.Context, p framework.Proc, key string) ([]byte, error)

	// Fence returns when every member of group has called Fence with the same group, in the same
	// order, and the same tag. The caller is a member. The tag may be reused at once. A call that
	// returns an error has withdrawn. The other members wait until their deadlines, and the first
	// deadline ends the fence for all of them. The end of a member fails it at once. If the server
	// does not answer (ErrTransport, although other calls of the client succeed), the member may
	// have withdrawn or not.
	Fence(ctx context.Context, group []framework.Proc, tag string) error

	// Construct is a Fence that also draws a 64-bit context id and distributes the payloads of all
	// members, of up to MaxPayload bytes each. Concurrent constructs with different tags or groups
	// are independent.
	Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (Constructed, error)

	// Close ends the connection. Calls in progress and later calls return ErrClosed. A process that
	// ends without Close is reported as failed, whatever its exit status. After Close it is
	// reported only if it ends by a signal or with a status other than 0. The process may open a
	// new client after Close, and its values remain.
	Close() error
}

// Optional interfaces, found by framework.As.

// A Directory publishes values under names for the whole job.
type Directory interface {
	// Publish stores value under name, and copies it. It returns ErrPublished if the name is in
	// use.
	Publish(ctx context.Context, name string, value []byte) error
	// Unpublish removes name, which any process of the job may have published. It returns
	// ErrNotPublished if there is none.
	Unpublish(ctx context.Context, name string) error
	// Lookup returns the value of name. With wait it waits for Publish, until ErrTimeout. Otherwise
	// ok is false for a name that is not published, without an error.
	Lookup(ctx context.Context, name string, wait bool) (value []byte, ok bool, err error)
}

// PsetInfo describes a process set.
type PsetInfo struct {
	Name    string
	Members framework.Procs
	// Created after the start of the job.
	Dynamic bool
}

// A PsetSource has the launcher's process sets. WORLD, SELF, SHARED and ROOTS are not among them,
// because they follow from Identity (BuiltinPset).
type PsetSource interface {
	// Psets returns their names.
	Psets(ctx context.Context) ([]string, error)
	// Pset finds a set by PsetKey(name). ErrPset names the nearest one and a few others.
	Pset(ctx context.Context, name string) (PsetInfo, error)
}

// A Bystander is a client whose launcher has no operation of a part of the job only (parameter
// exchange, value all). Every process of the job takes part in each fence and construct of two or
// more, in the same order. Processes outside the group call StandBy, and Construct waits for them.
type Bystander interface {
	// StandBy takes part in a construct of group with tag. The caller is no member (else
	// ErrGroup). It returns when all processes of the job have called, with the errors of
	// Client.Construct.
	StandBy(ctx context.Context, group []framework.Proc, tag string) error
}

// EventKind is the kind of an Event. PeerFailed, PeerLeft and PeerUnreachable report a new state of a
// process (PeerState). The numbers are those of the wire.
type EventKind uint8

const (
	// A process was reported dead; see Client.Close and EventSource. The event is repeated with the
	// nonce if that was unknown at first.
	PeerFailed EventKind = iota + 1
	// The connection to the server broke.
	ServerLost
	// The server requests an Inspect dump on standard error.
	Dump
	// An incarnation of a process has left; see EventSource.EndIncarnation.
	PeerLeft
	// A process has disconnected from this incarnation of this process; see EventSource.Disconnect.
	PeerUnreachable
	// The collectives of a communicator have failed; see EventSource.ReportBroken.
	CommBroken
	// A note has arrived; see Noter.
	NoteReceived
	// A member has revoked a communicator; see Revoker.
	CommRevoked
)

// PeerState returns the state that an event of this kind reports, or Alive if it reports none.
func (k EventKind) PeerState() framework.PeerState {
	switch k {
	case PeerFailed:
		return framework.Failed
	case PeerLeft:
		return framework.Left
	case PeerUnreachable:
		return framework.Unreachable
	}
	return framework.Alive
}

// Event is an event from the server.
type Event struct {
	Kind EventKind
	// The process that the event is about or that sent it.
	Proc framework.Proc
	// Nonce of the last incarnation of Proc (EventSource.BeginIncarnation), 0 if none or unknown.
	Nonce uint64
	// Communicator of CommBroken and CommRevoked.
	Comm cid.Extended
	// Bytes of the note (NoteReceived).
	Body string
	// Reason such as "signal: killed" or "exit status 3". PeerUnreachable and CommBroken have the
	// reason of their sender, and Dump has the kind of dump (package mpi).
	Reason string
}

// PeerEvent returns the event for an incarnation that e concerns. Several may be concerned, because an
// event without a nonce is about the present incarnation, and the streams of a process end with it. The
// kind must report a state.
func (e Event) PeerEvent(peer framework.Incarnation) framework.PeerEvent {
	switch e.Kind {
	case PeerFailed:
		return framework.FailedEvent(peer, e.Reason)
	case PeerLeft:
		return framework.LeftEvent(peer)
	}
	return framework.UnreachableEvent(peer, fmt.Errorf("%w: %s", framework.ErrPeerDisconnected, e.Reason))
}

// An EventSource delivers events.
//
// A live process may be reported dead, by a launcher that is wrong or because it does not answer.
// Its client receives PeerFailed with its own Proc and its present nonce as the last event, at the
// latest when it reads again. Its later calls return ErrProcFailed, it cannot open another client,
// and its messages are discarded.
type EventSource interface {
	// BeginIncarnation starts an incarnation of this process with that nonce, which the event of
	// its death names. Processes that learn of the incarnation by a later fence or construct receive that
	// nonce. It returns at once.
	BeginIncarnation(nonce uint64)
	// EndIncarnation ends the incarnation. This process has closed its last session, and
	// receives no more messages. Processes with an open client receive PeerLeft soon. Close implies
	// it. It returns at once.
	EndIncarnation()
	// Disconnect disconnects from an incarnation of another process, which receives
	// PeerUnreachable with the reason. It returns at once. The event is lost if the server does not read for long.
	Disconnect(p framework.Proc, nonce uint64, reason string)
	// ReportBroken reports to the other members of a communicator that this one takes no further
	// part in its collectives. They receive CommBroken once for each communicator, with the first
	// reason. It returns at once. The event is lost if the server does not read for long.
	ReportBroken(comm cid.Extended, members []framework.Proc, reason string)
	// OnEvent sets the receiver of later events, and of earlier deaths at once. f is called for one
	// event at a time, in order, from a goroutine of the client. f must not block nor call the
	// client. A second OnEvent replaces f, and nil removes it, while a call of the old one may
	// still be in progress. There is no call after Close has returned.
	OnEvent(f func(Event))
}

// A Noter sends notes. Clients that implement it are an EventSource too.
type Noter interface {
	// Note sends body, of up to MaxPayload bytes, to incarnation nonce of p, which receives
	// NoteReceived with the sender, its incarnation and the body. It returns at once and copies
	// body. A longer body is ErrUnsupported.
	//
	// A note is lost if the receiver has no client open, is in another incarnation or does not read
	// for long, and if either process is reported dead. A sender that depends on it repeats it. Two
	// notes that arrive are in the order of their calls.
	Note(p framework.Proc, nonce uint64, body []byte) error
}

// A Revoker revokes communicators. Clients that implement it are an EventSource too.
type Revoker interface {
	// Revoke sends CommRevoked to the other processes among members, once for each communicator, and
	// copies members. It returns once the event is written to the connections of this process, so
	// that the process may exit, or after RevokePatience. All live members receive the event as
	// soon as one of them has received it, although the caller fails or closes, or connections
	// break. No revocation is dropped for lack of room. A member whose client opens later receives
	// it then, or with its first fence that includes a process with the event, in any incarnation.
	// A revocation before OnEvent waits for it. A second Revoke of a communicator has no effect
	// unless 65,536 others have followed the first.
	//
	// It returns ErrClosed after Close, ErrTransport if the launcher is lost, and ErrUnsupported
	// for too many members.
	Revoke(comm cid.Extended, members []framework.Proc) error
}

// A Reporter sends named reports to the launcher, which prints them when the job ends (`ferry run
// --explain`, `--timing`). Report returns once the launcher has the report.
type Reporter interface {
	Report(ctx context.Context, name string, body []byte) error
}
