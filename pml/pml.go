// Package pml is the contract of point-to-point management layers: what
// package mpi calls to move messages. A PML matches messages with receives (by
// package match, or in a network below) and runs the protocols.
//
// # Threads
//
// Methods of Comm and Request may be called by any goroutine at any time; a PML
// takes the progress engine's lock itself. Methods of Module are safe too,
// except where they say otherwise.
//
// # Buffers
//
// A Buffer is the PML's from the start of an operation until it completes; the
// PML never keeps a pointer to it afterwards. Goroutine stacks move: a PML keeps
// slices, never addresses as numbers.
package pml

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Wildcards and null values as in package mpi.
const (
	AnySource = -1
	AnyTag    = -2
	ProcNull  = -3
)

// AllEndpoints, in the place of an endpoint, is every endpoint of a process.
const AllEndpoints = -1

// Component is what a PML registers.
type Component interface {
	framework.Component
	// Open makes the module of this process. It contacts no peer.
	Open(ctx context.Context, env Env) (Module, error)
}

// Env is what a PML is opened with.
type Env struct {
	progress.Env
	Params any
	Hooks  Hooks // nil when nobody looks
	// Modules opens what the component requires (framework.Requirer).
	Modules framework.Opener
	// Cards has the cards of members that Learn has not brought. nil: it brings all of them before AddComm.
	Cards Cards
	// GiveUp tells a process that nothing can be exchanged with it any more, though it is
	// neither known to have failed nor to have left, and why: its operations with this
	// one end too (PeerGone). Called once for each life, and once again after each Renew
	// (Renewer), with the engine's lock held; it
	// returns at once. nil: nobody can be told.
	GiveUp func(peer framework.Life, why error)
	// Droppable reports that a process has gone and is in no communicator (PeerDropper). Calls come with the
	// engine's lock held, and may repeat. It returns at once. nil: no reports.
	Droppable func(peer framework.Life)
	// LateRoutes: Route is asked at the end, about peers that have left by then. It says
	// how their paths were.
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
	Card(peer framework.Life) (framework.Card, bool)
	// Find returns the incarnation with a nonce. If it returns false, Module.Learn brings the card if it comes later.
	Find(nonce uint64) (framework.Life, bool)
	// Node returns the node of an incarnation as its card names it, empty if it is not known.
	Node(peer framework.Life) string
}

// Event tells Hooks, if there are any.
func (e *Env) Event(ev Event) {
	if e.Hooks != nil {
		e.Hooks.Event(ev)
	}
}

// Offer is what a process can do with this PML. It travels with the business
// card; members with equal offers need no further exchange. Strings compare as
// they are.
type Offer struct {
	PML      string
	Version  uint32 // of the wire format
	Priority int
	Detail   string // MTL, provider, tag mode and widths where there is an MTL
}

// A Module is one PML in one process.
type Module interface {
	Offer() Offer
	// Addresses returns the entries of this PML and of the modules below it for the
	// process's business card. They change only with what a BTL is started again for.
	Addresses() []framework.Address

	// CIDs is the table from which indices for this PML's communicators come.
	CIDs() *cid.Table
	// Caps says what the PML can do with its transports. They are fixed once it is open.
	Caps() Caps

	// Learn gives the business card of a process: from now on messages can go
	// there. Cards that Env.Cards has come only if the PML has asked for one of that process. A newer card of the same life is used by paths that open from now on: a
	// transport may have been started again. Another life of a process
	// says that it has closed its last session and opened one again, or was replaced:
	// it is another peer from now on, and what waits for the earlier one ends. An error
	// says that the card makes no sense.
	Learn(peer framework.Life, card framework.Card) error

	// AddComm makes a communicator usable. The card of every member other than this process
	// has come (Learn, Env.Cards). Messages that had arrived for it are delivered now.
	AddComm(spec CommSpec) (Comm, error)

	// PeerFailed says that a process is gone: everything pending with that life of it
	// ends with ErrProcFailed, and so does everything new. It holds for a life whose
	// card comes only afterwards too. Receives from any source go on (Comm.Suspend).
	PeerFailed(peer framework.Life, reason string)

	// PeerGone says that nothing more is exchanged with a life of a process that has not
	// failed: how wraps framework.ErrPeerClosed if it has closed its last session in good
	// order, and framework.ErrGivenUp if it can't exchange anything with this process. What
	// it had sent before is received first. It may come late, and more than once.
	PeerGone(peer framework.Life, how error)

	// Refuse says that an endpoint of this process is, and will be, in no communicator whose
	// id lies in the span: its part in their creation has failed. Messages for them are
	// dropped, and a member that waits for one of the endpoint is notified. AllEndpoints is
	// the process as a whole, also in communicators of whole processes.
	Refuse(s cid.Span, endpoint int)

	// Inquire says that others may have refused, though none has failed: whoever waits for a
	// member from which nothing has come on a communicator, now or later, asks whether it is
	// in it. After PeerFailed that is so without being told. What has arrived is taken first. by
	// is the process that may have refused. In a large communicator, a wait for any source asks
	// that one and the members that were used.
	Inquire(by framework.ProcID)

	// Route says how messages to a process travel, or would.
	Route(peer framework.Life) Route

	// Stats returns counts per process that messages went to or came from.
	Stats() []PeerStats

	// Inspect describes queues and states for a person who debugs a hang: what is known
	// here. It changes nothing, and neither asks a network nor waits for one; it returns
	// within 100 ms, if need be with the error that the engine is stuck
	// (progress.Engine.Observe).
	Inspect(ctx context.Context) (Inspection, error)

	// Flush returns when everything that was accepted is on its way without
	// further help of this process, or with the cause of ctx. Peers may have been told
	// that nothing more comes: nothing is started afterwards, and Close is next.
	Flush(ctx context.Context) error

	// Close frees all. No communicator is left, and no call is in progress. The engine
	// does not poll the transports any more; they are closed next.
	Close() error
}

// Caps says what users may expect of a PML, whoever the peer is. It has all four probes.
type Caps struct {
	TagMax     int   // the largest tag
	MaxMessage int64 // the longest message that goes to everybody, in bytes; a longer one may be refused with ErrUnsupported
	// Withdraw: a send that has not matched can be withdrawn. Otherwise one that has left
	// may go on (PendingError).
	Withdraw bool
	// Arrivals: a message is known when it arrives: Inspect lists it, also for a
	// communicator that is not there yet, and communicators are Watchable. What the
	// receiver has no room for waits with its sender, queued.
	Arrivals bool
	// Steps are lengths at which messages begin to travel in another way, sorted. Tests go
	// to both sides of each.
	Steps []int
}

// CommSpec describes a communicator to a PML.
type CommSpec struct {
	ID    cid.Extended
	Local cid.Local // this process's own index, from the module's table; the PML closes it
	// Agreed says that every member has the same Local (policy agree). Indices,
	// when not nil, holds each member's own (policy gather). Neither: lazy.
	Agreed  bool
	Indices []cid.Local
	Members Members
	Rank    int // of this member, which is an endpoint of this process
	// Elsewhere has the members that another PML serves for all messages of this
	// communicator. All other members of this process are among them, and this one may be.
	// The handles of a process share one set.
	Elsewhere *RankSet
	Name      string // for Inspect
}

// IsElsewhere reports whether another PML has a member's messages.
func (s *CommSpec) IsElsewhere(rank int) bool { return s.Elsewhere.Has(rank) }

// Plane separates traffic that must never match: a user's messages never meet
// a collective's, whatever their tags.
type Plane uint8

const (
	PointToPoint Plane = iota // the user's messages
	Collective                // those of collective operations
	Control                   // the library's own: creation of communicators
	planes
)

// Planes is the number of planes.
const Planes = int(planes)

// Mode is how a send completes (MPI-4.1 section 3.4).
type Mode uint8

const (
	Standard    Mode = iota
	Synchronous      // completes only after the receive has matched
	Ready            // the receive is posted already, the user says
)

// Buffer describes a message's memory. The zero Buffer is an empty message. It has
// four words, so that it travels in registers.
type Buffer struct {
	Bytes []byte
	// Form says what is out of the ordinary; nil: the message is Bytes, all of it.
	Form *Form
}

// Form is what a buffer is besides bytes. It is immutable, and many buffers may
// share it.
type Form struct {
	// Layout, when not nil, says which parts of the bytes make up the message.
	Layout Layout
	Kind   MemoryKind
}

// InRegistered is the form of a message that is all of its bytes, in Registered
// memory.
var InRegistered = &Form{Kind: Registered}

// Layout returns the buffer's layout, or nil.
func (b Buffer) Layout() Layout {
	if b.Form == nil {
		return nil
	}
	return b.Form.Layout
}

// Kind says where the buffer's memory lies.
func (b Buffer) Kind() MemoryKind {
	if b.Form == nil {
		return Heap
	}
	return b.Form.Kind
}

// Len is the length of the message in bytes.
func (b Buffer) Len() int64 {
	if l := b.Layout(); l != nil {
		return l.Size()
	}
	return int64(len(b.Bytes))
}

// MemoryKind says where a buffer's memory lies.
type MemoryKind uint8

const (
	Heap       MemoryKind = iota // Go memory, or anything that is copied like it
	Registered                   // from AllocMem: peers on the node can read it, or the network knows it
)

// A Layout picks a message out of a buffer. Implementations are immutable.
type Layout interface {
	// Size is the number of bytes of the message.
	Size() int64
	// Extent is the number of bytes that the buffer must have.
	Extent() int64
	// Pack copies the message's bytes [offset, offset+len(dst)) into dst.
	Pack(dst []byte, buf []byte, offset int64)
	// Unpack is the reverse; bytes between the layout's blocks stay as they are.
	Unpack(buf []byte, src []byte, offset int64)
}

// A Comm is one communicator in one PML. Ranks are those of CommSpec.Members and
// are in range, tags too: package mpi has checked.
//
// A context that ends withdraws an operation that is not matched yet; once
// matched, it completes or fails with the peer. nil is context.Background.
type Comm interface {
	// Send blocks until buf is the caller's again.
	Send(ctx context.Context, buf Buffer, dst, tag int, plane Plane, mode Mode) error
	// Isend starts a send. The request is the caller's, to be waited for or freed.
	Isend(buf Buffer, dst, tag int, plane Plane, mode Mode) (*Request, error)
	// Recv blocks until a message was received into buf. Status.Bytes is the
	// full length of the message, also with ErrTruncate.
	Recv(ctx context.Context, buf Buffer, src, tag int, plane Plane) (Status, error)
	Irecv(buf Buffer, src, tag int, plane Plane) (*Request, error)
	// StartSend is Isend, and StartRecv Irecv, for a caller who holds the engine's lock: he
	// hears of the end by Request.Notify. Neither waits.
	StartSend(buf Buffer, dst, tag int, plane Plane, mode Mode) (*Request, error)
	StartRecv(buf Buffer, src, tag int, plane Plane) *Request

	// Probe blocks until a message that matches is here; it stays.
	Probe(ctx context.Context, src, tag int, plane Plane) (Status, error)
	Iprobe(src, tag int, plane Plane) (Status, bool, error)
	// Mprobe is Probe that also takes the message out of matching: only the
	// returned Claimed receives it (MPI-4.1 section 3.8.2).
	Mprobe(ctx context.Context, src, tag int, plane Plane) (Claimed, Status, error)
	Improbe(src, tag int, plane Plane) (Claimed, Status, bool, error)

	// Abort ends what is pending on a plane of this communicator with err, except
	// for operations that have matched: they complete. Operations that come later
	// and can't complete at once fail with err too, and so does what has matched and then can't
	// complete, whatever the reason. It is how members that wait for
	// one another hear that it is in vain.
	Abort(plane Plane, err error)

	// Suspend suspends the receives from any source on a plane after the death of a member, those that are pending and those
	// that are posted later. They stay matchable. Wait, Test and their variants return why, and leave the request active. Once a
	// receive has matched, it is not suspended. A blocking Recv returns why if no message is here, and its receive is withdrawn. A
	// probe from any source does the same. A later reason replaces an earlier one. With a nil reason the
	// receives wait again, unless all other members are gone; then they end.
	//
	// The caller calls Suspend after each PeerFailed of a member, with a reason or nil. Until then receives from any source wait.
	// Requests of StartRecv are never suspended.
	Suspend(plane Plane, why error)

	// Close ends the communicator. It returns at once: pending operations still
	// complete, then its resources go. Messages that nobody received are dropped, and
	// synchronous sends of them fail with framework.ErrCommClosed.
	Close()
}

// Claimed is a message that a matched probe has taken. It is received once, by
// one of these; a second time is ErrClosed.
type Claimed interface {
	// Recv waits until the message is in buf. If ctx ends first the receive goes on
	// all the same, because it has matched: Recv waits for it.
	Recv(ctx context.Context, buf Buffer) (Status, error)
	Irecv(buf Buffer) (*Request, error)
	// Start is Irecv for a caller who holds the engine's lock.
	Start(buf Buffer) (*Request, error)
	// Drop ends the message without a receive, unless that has begun. A synchronous send of
	// it fails. For a caller who holds the engine's lock.
	Drop()
}

// Status describes a completed operation (MPI-4.1 section 3.2.5).
type Status struct {
	Source   int  // rank of the sender; AnySource where there was no message
	Tag      int  // AnyTag where there was no message
	Bytes    int  // full length of the message
	Canceled bool // the operation was canceled, and transferred nothing
	Err      error
}

// NoMessage is the status of operations that concern no message.
func NoMessage() Status { return Status{Source: AnySource, Tag: AnyTag} }

// Route is how messages to one process travel.
type Route struct {
	PML       string
	Transport string // BTL or MTL; empty: none reaches the process
	Device    string
	Provider  string
	Rejected  []framework.Rejection // the others, and why not
	Used      bool                  // there is a path, or was until the peer left
	Failed    bool                  // an operation needed a path, and none opened: that is why Transport is empty
	Notes     []string              // which of the transport's ways are on or off for this peer, and why
	Unused    []framework.Rejection // addresses by which the transport could reach it and does not, and why
	Learnt    []Learnt              // of large messages that came from it
}

// PeerStats counts what went to and came from one process since it was learnt.
type PeerStats struct {
	Peer                 framework.Life
	Transport            string
	Sent, Received       uint64 // messages
	SentBytes, RecvBytes uint64 // payload
	Unexpected           uint64 // arrived before their receive
	Dropped              uint64 // for communicators that had been closed
	Reconnects, Resent   uint64 // connections that were made again, and frames that went again
}

// Inspection is a snapshot of a PML for people.
type Inspection struct {
	Comms []CommInspection
	// EarlyArrivals counts messages for communicators that don't exist here yet.
	EarlyArrivals int
	// Notes say what the snapshot can't have.
	Notes []string
}

// CommInspection is a snapshot of one communicator.
type CommInspection struct {
	ID         cid.Extended
	Endpoint   uint16 // Endpoint of this process that the handle belongs to.
	Name       string
	Local      cid.Local
	Posted     []Pending // receives that wait
	Unexpected []Pending // messages that wait
	Sends      []Pending // sends that are not complete
	// Learnt is what the process has learnt of large messages, by the rank that sent them.
	Learnt map[int][]Learnt
}

// Pending is one entry of an inspected queue.
type Pending struct {
	Peer, Tag int
	Bytes     int64
	Plane     Plane
	State     string // "posted", "offered", "copying"
	Wait      Awaited
}

// Awaited says whether somebody waits for an operation.
type Awaited uint8

const (
	NotAwaited    Awaited = iota
	AwaitedLater          // in Wait, or one of its kind
	AwaitedInCall         // in the call that has begun it: Send, Recv
)

// Hooks see what happens, in the order in which it does, with the engine's lock
// held, that of a goroutine rank for its messages: they must not call ferry, nor block. Calls
// come one at a time in a process. Metrics, tracing and fault
// injection hang on them.
type Hooks interface {
	Event(Event)
}

// EventKind says what a hook sees.
type EventKind uint8

const (
	EventSend         EventKind = iota + 1 // a message was given to the PML
	EventRecv                              // a receive was posted
	EventMatch                             // a message met its receive
	EventControl                           // a control frame went or came
	EventTransportUp                       // a path to a peer opened
	EventTransportOut                      // a path is gone
	EventLink                              // a connection beneath a path came or went
)

// Event is what a hook sees. Fields that don't apply are zero.
type Event struct {
	Kind  EventKind
	Peer  framework.Life
	Comm  cid.Extended
	Tag   int
	Bytes int64
	Plane Plane
	// Waited is how long the receive of an EventMatch had been posted: next to nothing if the
	// message was there first. Where a PML is composed of two, a receive from any source that
	// gets a message of the node counts from when it got it.
	Waited time.Duration
	Note   string // control frame's type, transport's name
}
