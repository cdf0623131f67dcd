// Package bootstrap is the contract between ferry and whatever started the
// process: who am I, who else is there, and how do we meet before any
// transport works. Implementations stand beside it: bootstrap/local speaks to
// `ferry run`, and serves a program that was started by itself; with bootstrap/meet the
// processes of any other launcher serve one another.
//
// A Client never carries user messages. Every call that waits takes a context
// and also has a deadline of its own (Env.Timeout, parameter
// bootstrap.timeout), so that a member that never comes is an error that names
// it, and never a hang.
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
	Params  any           // what Component.Params returned, filled
	Logger  *slog.Logger  // nil discards
	Timeout time.Duration // how long each waiting call waits at most; 0 means DefaultTimeout

	HostTimeout    time.Duration // Time from the last sign of a host to the report of its loss; 0 means DefaultHostTimeout.
	ProcessTimeout time.Duration // Time for which a process may leave queries unanswered; 0 means that none are sent.
}

// DefaultTimeout is the deadline of a waiting call when Env names none: long
// enough for a rank that still loads its program from a slow file system.
const DefaultTimeout = 60 * time.Second

// DefaultHostTimeout is the time without a sign of a host, after which its processes are reported dead,
// when Env names none. It is that of btl.tcp.retry_timeout.
const DefaultHostTimeout = 30 * time.Second

// RevokePatience limits the time of Revoker.Revoke if the other end of a connection does not read.
const RevokePatience = time.Second

// What every implementation carries. More is an error (ErrUnsupported) on the
// caller's side, before anything is sent.
const (
	MaxName    = 1 << 10  // bytes in a key, a tag, a published or pset name
	MaxPayload = 64 << 10 // bytes that one member gives to a construct
	MaxValue   = 1 << 20  // bytes in a value that is put, published or reported
)

// What a Directory answers.
var (
	ErrPublished    = errors.New("name is already published")
	ErrNotPublished = errors.New("name is not published")
)

// Identity says who this process is. It never changes.
type Identity struct {
	Proc      framework.Proc
	First     int      // Rank of the first process in mpi://WORLD; above 0 in a process that was added to a running job.
	Size      int      // Processes in mpi://WORLD: ranks First to First+Size-1.
	Most      int      // Largest number of processes that the job may have at a time; Size if it does not grow.
	LocalRank int      // position of this process in LocalRanks
	LocalSize int      // processes of the namespace on this node
	Locals    []uint32 // their ranks, ascending; the members of mpix://SHARED. Empty, and LocalSize 0: the launcher does not say
	Nodes     NodeMap  // Map of the nodes of mpi://WORLD. It is empty if it is not known, or if a NodeMapper returns it.
	Divided   bool     // Processes of different nodes of Nodes share no memory, although they are on one machine.
	Dir       string   // a directory that belongs to the job, on this node; "" when there is none
	Singleton bool     // there is no launcher
}

// MostLocal returns the largest number of processes that the job is expected to have on this
// node at a time, for values that are fixed when a session opens. It is 0 if the launcher does
// not name the processes of a node. progress.Engine.NodeProcs is the present number.
func (id Identity) MostLocal() int {
	if id.LocalSize == 0 {
		return 0
	}
	return id.LocalSize + max(id.Most-id.Size, 0)
}

// IsSpread reports whether processes of mpi://WORLD are known to be on other machines.
func (id Identity) IsSpread() bool {
	return id.LocalSize > 0 && id.LocalSize < id.Size && !id.Divided
}

// MostOnMachine is MostLocal for the processors, which the nodes of a divided machine share.
func (id Identity) MostOnMachine() int {
	if id.Divided {
		return max(id.Size, id.Most)
	}
	return id.MostLocal()
}

// OnMachine returns the ranks of mpi://WORLD that share the processors of this machine, as far as they are known, ascending.
func (id Identity) OnMachine() []uint32 {
	if !id.Divided {
		return id.Locals
	}
	var ranks []uint32
	for i := range id.Size {
		ranks = append(ranks, uint32(id.First+i))
	}
	return ranks
}

// NodeMark returns a text that differs in processes of different nodes of a divided machine, and is empty on
// any other machine.
func (id Identity) NodeMark() string {
	node, ok := id.Nodes.Node(id.Proc.Rank)
	if !id.Divided || !ok {
		return ""
	}
	return fmt.Sprintf("n%d", node)
}

// Leads reports whether this process performs the tasks that one process of a node performs for
// the whole job, such as warnings. Added processes leave these to the initial ones.
func (id Identity) Leads() bool { return id.First == 0 && id.LocalRank == 0 }

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
// Errors: *framework.MissingError with the members that did not come in time or died;
// ErrTransport when the server is gone; ErrClosed after Close; ErrProcFailed if this process was
// reported dead (see EventSource);
// the cause of ctx when that ended (it may wrap *framework.MissingError too);
// ErrGroup for a group that is empty, has a member twice, a process that is not
// of this job, or not the caller; ErrUnsupported over a limit above.
type Client interface {
	Identity() Identity

	// Put stores value under key in this process's name. It returns when the
	// value is on its way; a Get by anyone that starts after a later fence or
	// construct in which both took part sees it. value is copied.
	Put(ctx context.Context, key string, value []byte) error

	// Get returns what p stored under key. It waits until p has put it, and
	// fails when p has ended without. In a job that changes, the values of a process that has
	// ended may be dropped, and Get fails too. The result is the caller's.
	Get(ctx context.Context, p framework.Proc, key string) ([]byte, error)

	// Fence returns when every member of group has called Fence with the same
	// group, in the same order, and the same tag. The caller must be a member.
	// The same tag may be used again at once. A member whose call ends with an
	// error has withdrawn: the others go on waiting for it until their deadline,
	// except that the first deadline to pass ends the fence for all that wait. A
	// member that has ended, in whatever way, ends it at once. With a server that says
	// nothing (ErrTransport, though others of the client's calls work) it is not known
	// whether the member has withdrawn.
	Fence(ctx context.Context, group []framework.Proc, tag string) error

	// Construct is a Fence that also agrees on a 64-bit context id and hands
	// every member's payload to all. Payloads are small (up to 64 KiB).
	// Concurrent constructs with different tags, or over different groups, do
	// not disturb one another.
	Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (Constructed, error)

	// Close ends the connection. Calls in progress return ErrClosed, and so does
	// a second Close. A process that ends without Close is reported to the others
	// as failed, whatever its exit status; one that closed is reported only when
	// it then ends by a signal or with a status other than 0. After Close the
	// process may open a new client; what it has put stays.
	Close() error
}

// The optional abilities: ask for each by framework.As.

// A Directory publishes values under names that the whole job sees.
type Directory interface {
	// Publish stores value under name, and copies it. A name can be published
	// once, until it is withdrawn; a second time is ErrPublished.
	Publish(ctx context.Context, name string, value []byte) error
	// Unpublish withdraws name; any process of the job may. A name that is not
	// published is ErrNotPublished.
	Unpublish(ctx context.Context, name string) error
	// Lookup returns the value of name. If wait is set it waits until someone
	// publishes it (ErrTimeout when nobody does); otherwise ok is false for a
	// name that is not published, with no error.
	Lookup(ctx context.Context, name string, wait bool) (value []byte, ok bool, err error)
}

// PsetInfo describes a process set.
type PsetInfo struct {
	Name    string
	Members framework.Procs
	Dynamic bool // it was created after the job started
}

// A PsetSource knows the launcher's process sets. WORLD, SELF, SHARED and ROOTS are not
// among them: they follow from Identity (BuiltinPset).
type PsetSource interface {
	// Psets returns their names.
	Psets(ctx context.Context) ([]string, error)
	// Pset finds a set by PsetKey(name). ErrPset names the nearest one, and lists a few sets.
	Pset(ctx context.Context, name string) (PsetInfo, error)
}

// A Bystander is a client under which every process of the job has to take part in each
// fence and construct of two or more, in the same order, because its launcher has no
// operation of some processes only (parameter exchange, value all). Its Construct waits for
// those outside the group as well, which call StandBy instead.
type Bystander interface {
	// StandBy takes part in the construct that group makes with tag, of which the caller is
	// no member (ErrGroup if it is). It returns when all processes of the job have come, with
	// the errors of Client.Construct.
	StandBy(ctx context.Context, group []framework.Proc, tag string) error
}

// EventKind says what happened.
type EventKind uint8

const (
	ProcDied   EventKind = iota + 1 // A process was reported dead; see Client.Close and EventSource. It is repeated with the nonce if that was not known at first.
	ServerLost                      // the connection to the server broke
	Dump                            // the server asks for an Inspect dump on standard error
	ProcLeft                        // a life of a process is over in good order; see EventSource.End
	GivenUp                         // a process has given this life of this process up; see EventSource.GiveUp
	Broken                          // the collectives of a communicator can't go on; see EventSource.Broke
	Noted                           // A note has arrived; see Noter.
	Revoked                         // A member has revoked a communicator; see Revoker.
)

// Event is news from the server.
type Event struct {
	Kind   EventKind
	Proc   framework.Proc // ProcDied, ProcLeft, GivenUp, Broken: who; Noted: the sender; Revoked: the member
	Nonce  uint64         // likewise: of the last life that it began (EventSource.Begin); 0: none, or not known
	Comm   cid.Extended   // Broken, Revoked
	Body   string         // Bytes of the note (Noted).
	Reason string         // "signal: killed", "exit status 3"; GivenUp, Broken: as it was given; Dump: how, see package mpi
}

// An EventSource delivers events.
//
// A live process may be reported dead, by a launcher that is wrong or because it does not answer. Its client
// receives ProcDied with its own Proc and its present nonce as the last event, at the latest when it reads
// again. Its later calls return ErrProcFailed, it cannot open another client, and its messages are discarded.
type EventSource interface {
	// Begin says that a life of this process begins, with that nonce: if the process
	// dies, others are told that this life of it did. Who hears of the life by a fence
	// or construct in which the process takes part afterwards hears of its death under
	// that name. It returns at once.
	Begin(nonce uint64)
	// End says that the life is over in good order: this process has closed its last
	// session, and nothing more is sent to it. Those who have an open client hear ProcLeft
	// soon. Close says so too. It returns at once.
	End()
	// GiveUp tells a life of another process that this one can't exchange anything with it
	// any more, and why. It returns at once, and the news is lost if the server does not
	// read for long.
	GiveUp(p framework.Proc, nonce uint64, reason string)
	// Broke tells the other members of a communicator that this one has stopped taking
	// part in its collective operations, and why. They hear of each communicator once,
	// from whoever says so first. It returns at once, and the news is lost if the server does not
	// read for long.
	Broke(comm cid.Extended, members []framework.Proc, reason string)
	// OnEvent calls f for each event from now on, and at once for each process
	// that is already known dead; one call at a time, in order, from a goroutine
	// of the client. f must not block, nor call the client. There is one f; a
	// second OnEvent replaces it, nil removes it; a call of the old one may still
	// be under way then. After Close has returned there is none.
	OnEvent(f func(Event))
}

// A Noter sends notes. It is a capability of clients that are an EventSource too.
type Noter interface {
	// Note sends body, up to MaxPayload bytes, to the incarnation nonce of p, which receives the
	// event Noted with the sender, its incarnation and the body. It returns at once and copies
	// body. A longer body is ErrUnsupported.
	//
	// A note is lost if the receiver has no client open, is in another incarnation or does not
	// read for long, and if either process is reported dead. A sender that depends on it repeats it. Two
	// notes that arrive are in the order of their calls.
	Note(p framework.Proc, nonce uint64, body []byte) error
}

// A Revoker revokes communicators. It is a capability of clients that are an EventSource too.
type Revoker interface {
	// Revoke sends the event Revoked to the other processes among members, once for each
	// communicator. It copies members. It returns once the event is written to the connections of this
	// process, so that the process may exit, or after RevokePatience. All live members receive the event as soon
	// as one of them has received it, although the caller fails or closes, or connections break. No
	// revocation is dropped for lack of room. A member whose client opens later receives it then, or
	// with its first fence that includes a process with the event, in any incarnation. A
	// revocation before OnEvent waits for it. A second Revoke of a communicator has no effect unless
	// 65,536 others have followed the first.
	//
	// It returns ErrClosed after Close, ErrTransport if the launcher is lost, and ErrUnsupported for too
	// many members.
	Revoke(comm cid.Extended, members []framework.Proc) error
}

// A Reporter accepts a named report for the launcher to print when the job
// ends (`ferry run --explain`, `--timing`). It returns when the launcher has it.
type Reporter interface {
	Report(ctx context.Context, name string, body []byte) error
}
