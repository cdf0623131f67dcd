// Package pml is the contract of point-to-point management layers (PML), which move messages for package mpi. A PML
// matches messages with receives, by package match or in a network, and runs the transfer protocols.
//
// # Concurrency
//
// Methods of Comm, Request and Module are safe for concurrent use, unless their comment names a lock that the
// caller holds. A PML locks the progress engine itself.
//
// # Buffers
//
// The PML owns a Buffer from the start of an operation until it completes, and keeps no pointer to it afterwards. It
// must keep slices and never addresses as numbers, because goroutine stacks move.
package pml

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Wildcards and null values, as in package mpi.
const (
	AnySource = -1
	AnyTag    = -2
	ProcNull  = -3
)

// AllEndpoints stands for every endpoint of a process.
const AllEndpoints = -1

// Component is the component of a PML.
type Component interface {
	framework.Component
	// Open creates the module of this process. It contacts no peer.
	Open(ctx context.Context, env Env) (Module, error)
}

// Env is the environment of a module.
type Env struct {
	progress.Env
	Params any
	// Hooks is nil if there are no hooks.
	Hooks Hooks
	// Modules opens the modules that the component requires (framework.Requirer).
	Modules framework.Opener
	// Cards has the cards of members that were not passed to Learn. If it is nil, all cards are passed to Learn before
	// AddComm.
	Cards Cards
	// Disconnect disconnects a process that can exchange no more messages with this one, although it is not known to have
	// failed or left. why is the reason. The process is notified, and ends its operations with this one (PeerChanged).
	// Disconnect is called once for each incarnation, and once more after each Reconnect (Reconnector), with the engine's lock held.
	// It does not block. If it is nil, processes cannot be notified.
	Disconnect func(peer framework.Incarnation, why error)
	// Droppable reports that a process has ended and is in no communicator (PeerDropper). It is called with the
	// engine's lock held, possibly repeatedly, and does not block. It may be nil.
	Droppable func(peer framework.Incarnation)
	// LateRoutes is set if Route will be called at the end, for peers that may have left by then. It then describes
	// their former paths.
	LateRoutes bool
	// NodeBy is the parameter through which another PML leaves the processes of this node to this one
	// (framework.Requirement.By), or empty. Errors name it as a remedy.
	NodeBy string
}

// Cards has the business cards of the members of communicators. A PML takes the card of a process at its first use,
// so that a process without messages takes no memory. It may call the methods with the engine's lock held.
type Cards interface {
	// Card returns the card of an incarnation. If it returns false, the card has not come, or that of a later incarnation
	// has come. Module.Learn brings the card if it comes later, and later cards of the process.
	Card(peer framework.Incarnation) (framework.Card, bool)
	// Find returns the incarnation with a nonce. If it returns false, Module.Learn brings the card if it comes later.
	Find(nonce uint64) (framework.Incarnation, bool)
	// Node returns the node of an incarnation as its card names it, empty if it is not known.
	Node(peer framework.Incarnation) string
}

// Event passes an event to Hooks, if there are any.
func (e *Env) Event(ev Event) {
	if e.Hooks != nil {
		e.Hooks.Event(ev)
	}
}

// Capabilities has the capabilities of the PML of a process. It travels with the business card. Members with equal values need no
// further exchange. Strings are compared as they are.
type Capabilities struct {
	PML string
	// Version is that of the wire format.
	Version  uint32
	Priority int
	// Detail has the MTL, its provider, tag mode and widths, if there is an MTL.
	Detail string
}

// A Module is a PML in one process.
type Module interface {
	// Capabilities returns the capabilities of the PML.
	Capabilities() Capabilities
	// Addresses returns the entries of this PML and of the modules below it for the process's business card. They
	// change only when a BTL is restarted.
	Addresses() []framework.Address

	// CIDs returns the index table of this PML's communicators.
	CIDs() *cid.Table
	// Caps returns the properties of the PML with its transports. They are fixed once it is open.
	Caps() Caps

	// Learn stores the business card of a process, so that messages can be sent there. A card in Env.Cards is passed
	// only after the PML has requested one of that process. Paths that open later use a newer card of the same
	// incarnation, whose transport may have been restarted. A card of another incarnation means that the process was
	// replaced, or has closed its last session and opened one again. That is another peer, and operations with the
	// earlier incarnation end. An invalid card is an error.
	Learn(peer framework.Incarnation, card framework.Card) error

	// AddComm adds a communicator. The card of every member other than this process has come (Learn, Env.Cards). Early
	// arrivals for it are delivered.
	AddComm(spec CommSpec) (Comm, error)

	// PeerChanged reports that an incarnation exchanges no more messages with this process. Messages that it had sent before
	// are received first. The report may come late, and more than once. After Failed, pending and later operations with this
	// incarnation end with ErrProcFailed, even if its card comes only afterwards. Receives from any source continue
	// (Comm.Suspend). After Left and Unreachable, the operations end with the Err of the event.
	PeerChanged(ev framework.PeerEvent)

	// Refuse reports that the creation of communicators with ids in the span has failed at an endpoint of this process,
	// which will not be a member. Messages for them are dropped, and members that wait for the endpoint are notified.
	// AllEndpoints stands for the whole process, also in communicators of whole processes.
	Refuse(s cid.Span, endpoint int)

	// Inquire makes operations that wait for a member, now or later, ask it whether it is in the communicator, if no
	// message of it has come there. by is the process that may have refused. PeerChanged with Failed implies Inquire. Messages that
	// have arrived are handled first. In a large communicator, a wait for any source asks this process and the members
	// that were used.
	Inquire(by framework.ProcID)

	// Route describes the path of messages to a process, also if none was sent.
	Route(peer framework.Incarnation) Route

	// Stats returns the statistics of all processes that messages were exchanged with.
	Stats() []PeerStats

	// Inspect describes queues and states as far as they are known here, for debugging a hang. It changes no state and
	// sends no messages. It returns within 100 ms, with an error if the engine is stuck (progress.Engine.Observe).
	Inspect(ctx context.Context) (Inspection, error)

	// Flush returns when all accepted messages leave without further progress of this process, or with the cause of
	// ctx. Peers may have been notified that no more messages come. No operation starts afterwards, and Close follows.
	Flush(ctx context.Context) error

	// Close frees all resources. No communicator is left, and no call is in progress. The engine no longer polls the
	// transports, which the caller closes next.
	Close() error
}

// Caps has the properties of a PML that hold for all peers. Every PML has all four probes.
type Caps struct {
	// TagMax is the largest tag.
	TagMax int
	// MaxMessage is the longest message that all peers can receive, in bytes. A longer one may fail with ErrUnsupported.
	MaxMessage int64
	// Withdraw is set if unmatched sends can be withdrawn. Otherwise one that has left may continue (PendingError).
	Withdraw bool
	// Arrivals is set if the PML knows messages when they arrive. Inspect lists them, including early arrivals, and
	// communicators are Watchable. Messages without room at the receiver wait, queued, at their sender.
	Arrivals bool
	// Steps are the message lengths at which the transfer protocol changes, ascending. Tests use lengths on both sides
	// of each.
	Steps []int
}

// CommSpec describes a communicator to a PML.
type CommSpec struct {
	ID cid.Extended
	// Local is this process's own id, from the module's table. The PML closes it.
	Local cid.Local
	// Agreed is set if all members have the same Local (policy agree). Otherwise Indices has the id of each
	// member (policy gather), or is nil (policy lazy).
	Agreed  bool
	Indices []cid.Local
	Members Members
	// Rank is the rank of this handle, an endpoint of this process.
	Rank int
	// Elsewhere has the members that another PML serves for all messages of this communicator. It includes all other
	// members of this process, and may include this one. The handles of a process share one set.
	Elsewhere *RankSet
	// Name is printed by Inspect.
	Name string
}

// IsElsewhere reports whether another PML serves a member.
func (s *CommSpec) IsElsewhere(rank int) bool { return s.Elsewhere.Has(rank) }

// Plane separates traffic that must never match. Messages of the user and of collective operations never match each
// other, with any tags.
type Plane uint8

const (
	// PointToPoint has the messages of the user.
	PointToPoint Plane = iota
	// Collective has the messages of collective operations.
	Collective
	// Control has the library's own messages, for the creation of communicators.
	Control
	planes
)

// Planes is the number of planes.
const Planes = int(planes)

// Mode is the completion mode of a send (MPI-4.1 section 3.4).
type Mode uint8

const (
	Standard Mode = iota
	// Synchronous sends complete only after the receive has matched.
	Synchronous
	// Ready sends require that the receive is posted already.
	Ready
)

// Buffer describes a message's memory. The zero Buffer is an empty message. It has four words, so that it is passed
// in registers.
type Buffer struct {
	Bytes []byte
	// Form has properties other than the default. If it is nil, the message is Bytes as a whole.
	Form *Form
}

// Form has the properties of a buffer besides its bytes. It is immutable, and many buffers may share it.
type Form struct {
	// Layout selects the bytes that make up the message. nil selects all.
	Layout Layout
	Kind   MemoryKind
}

// InRegistered is the form of a message in Registered memory without a layout.
var InRegistered = &Form{Kind: Registered}

// Layout returns the buffer's layout, or nil.
func (b Buffer) Layout() Layout {
	if b.Form == nil {
		return nil
	}
	return b.Form.Layout
}

// Kind returns the kind of the buffer's memory.
func (b Buffer) Kind() MemoryKind {
	if b.Form == nil {
		return Heap
	}
	return b.Form.Kind
}

// Len returns the length of the message in bytes.
func (b Buffer) Len() int64 {
	if l := b.Layout(); l != nil {
		return l.Size()
	}
	return int64(len(b.Bytes))
}

// MemoryKind is the kind of a buffer's memory.
type MemoryKind uint8

const (
	// Heap is Go memory, or any other memory without registration.
	Heap MemoryKind = iota
	// Registered is memory from AllocMem, which peers on the node can read, or which is registered with the network.
	Registered
)

// A Layout selects a message's bytes from a buffer. Implementations are immutable.
type Layout interface {
	// Size returns the length of the message in bytes.
	Size() int64
	// Extent returns the required length of the buffer in bytes.
	Extent() int64
	// Pack copies the message's bytes [offset, offset+len(dst)) into dst.
	Pack(dst []byte, buf []byte, offset int64)
	// Unpack is the inverse. It does not change bytes between the layout's blocks.
	Unpack(buf []byte, src []byte, offset int64)
}

// A Comm is a communicator in one PML. Ranks are those of CommSpec.Members. Package mpi ensures that ranks and tags are
// in range.
//
// The end of a context withdraws an operation that is not matched. A matched operation completes, or fails with its
// peer. A nil context is context.Background.
type Comm interface {
	// Send blocks until the caller owns buf again.
	Send(ctx context.Context, buf Buffer, dst, tag int, plane Plane, mode Mode) error
	// Isend starts a send. The caller owns the request, and waits for it or frees it.
	Isend(buf Buffer, dst, tag int, plane Plane, mode Mode) (*Request, error)
	// Recv blocks until a message was received into buf. Status.Bytes is the full length of the message, even with
	// ErrTruncate.
	Recv(ctx context.Context, buf Buffer, src, tag int, plane Plane) (Status, error)
	Irecv(buf Buffer, src, tag int, plane Plane) (*Request, error)
	// StartSend and StartRecv are Isend and Irecv with the engine's lock held. Request.Notify reports the completion.
	// Neither blocks.
	StartSend(buf Buffer, dst, tag int, plane Plane, mode Mode) (*Request, error)
	StartRecv(buf Buffer, src, tag int, plane Plane) *Request

	// Probe blocks until a matching message has arrived. It leaves the message in matching.
	Probe(ctx context.Context, src, tag int, plane Plane) (Status, error)
	Iprobe(src, tag int, plane Plane) (Status, bool, error)
	// Mprobe is Probe that also removes the message from matching. Only the returned Claimed can receive it (MPI-4.1
	// section 3.8.2).
	Mprobe(ctx context.Context, src, tag int, plane Plane) (Claimed, Status, error)
	Improbe(src, tag int, plane Plane) (Claimed, Status, bool, error)

	// Abort fails the pending operations of a plane with err. Matched operations complete, or fail with err if they
	// cannot complete. Later operations that cannot complete at once fail with err too. It releases members that wait
	// for one another.
	Abort(plane Plane, err error)

	// Suspend suspends the receives from any source on a plane after the failure of a member, both pending and later ones.
	// They can still match. Wait, Test and their variants return why, and leave the request active. Once a receive has
	// matched, it is not suspended. A blocking Recv without a message returns why, and its receive is withdrawn. A probe
	// from any source does the same. A later reason replaces an earlier one. A nil reason resumes the receives, unless all
	// other members have ended. Then they fail.
	//
	// The caller calls Suspend after each PeerChanged of a failed member, with a reason or nil. Until then receives from any
	// source wait. Requests of StartRecv are never suspended.
	Suspend(plane Plane, why error)

	// Close closes the communicator and returns at once. Pending operations still complete, and then its resources are
	// freed. Messages without a receive are dropped, and synchronous sends of them fail with framework.ErrCommClosed.
	Close()
}

// Claimed is a message that a matched probe has claimed. It is received at most once. Later receives return ErrClosed.
type Claimed interface {
	// Recv waits until the message is in buf. The end of ctx does not end the receive, because it has matched.
	Recv(ctx context.Context, buf Buffer) (Status, error)
	Irecv(buf Buffer) (*Request, error)
	// Start is Irecv with the engine's lock held.
	Start(buf Buffer) (*Request, error)
	// Drop drops the message, unless its receive has started. A synchronous send of it fails. The caller holds the
	// engine's lock.
	Drop()
}

// Status describes a completed operation (MPI-4.1 section 3.2.5).
type Status struct {
	// Source is the rank of the sender, AnySource without a message.
	Source int
	// Tag is the tag of the message, AnyTag without one.
	Tag int
	// Bytes is the full length of the message.
	Bytes int
	// Canceled is set if the operation was canceled and has transferred nothing.
	Canceled bool
	Err      error
}

// NoMessage returns the status of operations without a message.
func NoMessage() Status { return Status{Source: AnySource, Tag: AnyTag} }

// Route describes the path of messages to one process.
type Route struct {
	PML string
	// Transport is the BTL or MTL, empty if none reaches the process.
	Transport string
	Device    string
	Provider  string
	// Rejected has the other transports, with reasons.
	Rejected []framework.Rejection
	// Used is set if there is a path, or was one until the peer left.
	Used bool
	// Failed is set if Transport is empty because no path could be opened for an operation.
	Failed bool
	// Notes has the transport's protocols that are enabled or disabled for this peer, with reasons.
	Notes []string
	// Unused has addresses that the transport could use and does not, with reasons.
	Unused []framework.Rejection
	// Estimates has the estimates for large messages from the process.
	Estimates []TransferEstimates
}

// PeerStats has the statistics of one process since its card was taken.
type PeerStats struct {
	Peer      framework.Incarnation
	Transport string
	// Sent and Received count messages, and SentBytes and RecvBytes their payload.
	Sent, Received       uint64
	SentBytes, RecvBytes uint64
	// Unexpected counts messages that arrived before their receive.
	Unexpected uint64
	// Dropped counts messages for closed communicators.
	Dropped uint64
	// Reconnects counts connections that were established again, and Resent retransmitted frames.
	Reconnects, Resent uint64
}

// Inspection is a snapshot of a PML for debugging.
type Inspection struct {
	Comms []CommInspection
	// EarlyArrivals counts messages for communicators that do not exist here yet.
	EarlyArrivals int
	// Notes describes the parts that the snapshot lacks.
	Notes []string
}

// CommInspection is a snapshot of one communicator.
type CommInspection struct {
	ID cid.Extended
	// Endpoint is the endpoint of this process that the handle belongs to.
	Endpoint uint16
	Name     string
	Local    cid.Local
	// Posted has the posted receives, Unexpected the unexpected messages, and Sends the incomplete sends.
	Posted     []Pending
	Unexpected []Pending
	Sends      []Pending
	// Estimates has the estimates for large messages, by the rank of their sender.
	Estimates map[int][]TransferEstimates
}

// Pending is an entry of an inspected queue.
type Pending struct {
	Peer, Tag int
	Bytes     int64
	Plane     Plane
	// State is the state of the operation, such as "posted", "offered" or "copying".
	State string
	// Transfer is the protocol and the progress of a large message in transfer, or "".
	Transfer string
	Wait     Awaited
}

// Awaited is the kind of wait for an operation.
type Awaited uint8

const (
	NotAwaited Awaited = iota
	// AwaitedLater operations have a goroutine in Wait or one of its variants.
	AwaitedLater
	// AwaitedInCall operations have a goroutine in the call that has started them, Send or Recv.
	AwaitedInCall
)

// Hooks observe events, in order, for metrics, tracing and fault injection. Calls are serialized within a process. The
// engine's lock is held, or that of a goroutine rank for its messages. A hook must not call ferry, and must not block.
type Hooks interface {
	Event(Event)
}

// EventKind is the kind of an event.
type EventKind uint8

const (
	// EventSend is a send that was passed to the PML.
	EventSend EventKind = iota + 1
	// EventRecv is a posted receive.
	EventRecv
	// EventMatch is a message that has matched a receive.
	EventMatch
	// EventControl is a control frame that was sent or received.
	EventControl
	// EventTransportUp is the opening of a path to a peer.
	EventTransportUp
	// EventTransportOut is the end of a path.
	EventTransportOut
	// EventLink is the start or end of a connection below a path.
	EventLink
)

// Event is an event for hooks. Fields that do not apply are zero.
type Event struct {
	Kind  EventKind
	Peer  framework.Incarnation
	Comm  cid.Extended
	Tag   int
	Bytes int64
	Plane Plane
	// Waited is the time between the posting of the receive and an EventMatch, close to zero if the message had arrived
	// before. In a PML that is composed of two, a receive from any source counts from its match for messages of the node.
	Waited time.Duration
	// Note has the type of a control frame or the name of a transport.
	Note string
}
