// Package mtl is the contract of matching transport layers: modules that move
// messages between processes and match them with receives, often in the
// network's hardware. PML cm runs over any module.
//
// # Matching
//
// A message carries a communicator id, the rank of its sender and a tag. A
// receive names an id, a rank or AnySource, and a tag or AnyTag. The id is an
// opaque number to the module: what must never match, such as the planes of one
// communicator, gets different ids from the protocol, so that AnyTag means any
// tag of that plane. The module lays the three out in whatever its network
// matches, and says in Caps how many bits each may have.
//
// A process may have several ranks of a communicator. Each has its own id, and an endpoint, its
// number in the process. A module matches the rank of a source, or its process and endpoint
// (Caps.MatchesRank).
//
// Messages from one process with the same id match in the order of their sends,
// and receives in the order in which they were posted (MPI-4.1 section 3.5); a
// synchronous send takes its place among the others.
//
// # Calling rules
//
// Every method of a Module, except where it says otherwise, is called with the
// progress engine's lock held: a module needs no lock of its own. None of them
// blocks, and none refuses for want of room: what the network does not take now
// stays in the module, in order, and goes with a later Poll; receives of one id
// never wait for those of another. Nothing is allocated per operation in steady
// state.
//
// # Operations
//
// An Op is one operation. It is the module's from the call that starts it until
// the module calls its owner's Done, which happens once for each start, from
// Poll. It moves neither in memory nor to another module meanwhile. A call that
// returns an error, or says that the operation is done, has not kept the Op.
//
// # Messages of the dead
//
// A message up to Caps.Eager has come whole when a probe finds it. Of a longer one some
// is with its sender until it is received, and lost when that one dies: who receives such
// a message gets an error, from the call or from Done, and no other process's memory. A
// module asks nothing of a process that was forgotten (Forget). Before, it may be that
// only the network knows of the death, or not even that.
//
// A probe, with claim too, asks nothing of the sender. What a process has sent that has
// died a protocol therefore takes by claiming probes. It posts no receive any more that
// could match: what a provider does with one is the provider's affair.
//
// # Buffers
//
// A buffer that is handed to an operation is the module's for as long as the Op
// is; then the module keeps no pointer to it. It is memory that Go code may
// address, on the Go heap or not; a module that hands it to a C library pins it.
package mtl

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Wildcards of receives and probes.
const (
	AnySource = -1
	AnyTag    = -2
)

// ErrTooLong is wrapped by the error of a message above Caps.MaxMessage. Nothing
// of it was sent.
var ErrTooLong = errors.New("message longer than the transport takes")

// Component is what an MTL registers.
type Component interface {
	framework.Component
	// Open makes the module of this process. It may reserve memory and
	// descriptors, test what it has chosen within this process, and contacts no
	// peer. Called without the engine's lock.
	Open(ctx context.Context, env Env) (Module, error)
}

// Surveyor is an optional ability of a Component: what it could use on this
// machine and elsewhere, for `ferry info` and `ferry matrix`. A component that has
// it has a parameter provider_include, a list of names of providers.
//
// Code of providers is not ours: one may crash a process that only asks it what it
// offers. Who must not die of that calls Providers, and has one process for each
// call Survey with only that provider included.
type Surveyor interface {
	// Providers names what provider_include could name: all that the library below
	// has, whether it offers anything on this machine or not, and those that other
	// machines have. It asks none of them. It returns when ctx ends.
	Providers(ctx context.Context, params any) ([]string, error)

	// Survey returns a Candidate for everything that Open would choose from, in
	// the order in which Open would try them, and then one that is Unavailable for
	// each provider that offers nothing. Where params include providers, only those
	// are asked. It returns when ctx ends.
	Survey(ctx context.Context, params any) ([]Candidate, error)

	// LogEnvironment returns variables ("NAME=value") for the environment of a new
	// process, with which the library below writes to standard error what it finds.
	LogEnvironment() []string

	// LogReason returns what such a process wrote about why provider offers nothing,
	// in the library's words; empty if it wrote nothing about that.
	LogReason(provider, log string) string
}

// Env is what a module is opened with.
type Env struct {
	progress.Env     // the assembly, not the module, adds the module to its Engine
	Params       any // what Component.Params returned, filled
	Upcall       Receiver
	// Fabric says that nobody has asked for an MTL: it is opened because this machine has the
	// hardware of a network (framework.Verdict.Network), and uses that or fails.
	Fabric bool
}

// Receiver is what a module calls upwards. All calls come from the module's
// Poll, or RecvLook, with the engine's lock held.
type Receiver interface {
	// Control hands up one control message; data is valid until it returns. It may
	// come from anybody who knows the module's address, and says itself from whom
	// it is: the protocol checks it. The module's receive buffer is posted again
	// whatever Control does.
	Control(data []byte)

	// Endpoint returns where the member source of the communicator that has the
	// id cid here is reached. A module that must answer a synchronous message asks
	// so, when a receive from any source has matched it. ok is false if there is no
	// such member (any more): nobody is answered then. It may Connect.
	Endpoint(cid uint32, source int) (to Endpoint, ok bool)
}

// Caps says what a module can do. Fixed once the module is open.
type Caps struct {
	// The widths of what is matched. A process uses ids below 1<<CIDBits, ranks
	// below 1<<SourceBits and tags from 0 to 1<<TagBits - 1. CIDBits is at most 32,
	// the others at most 31.
	CIDBits, SourceBits, TagBits int

	// MatchesRank is set if a receive or a probe with a source matches its rank, so that
	// several ranks of a process are distinct. Otherwise it matches the source's process and
	// endpoint.
	MatchesRank bool
	// EndpointBits is the width of endpoints in the tag format, at most 16: without MatchesRank a
	// process uses endpoints below 1<<EndpointBits. 0: it has endpoint 0 only.
	EndpointBits int
	// RankSetting would make a module without MatchesRank match ranks.
	RankSetting RankSetting

	MaxMessage   int64 // the longest message, in bytes
	Inject       int   // Send is usually done with so many bytes when it returns
	Eager        int64 // the longest message that has come whole when a probe finds it
	ControlLimit int   // the longest control message, in bytes; at least MinControlLimit
}

// RankSetting is a parameter that makes a module match ranks. All processes of a job need the
// same value.
type RankSetting struct {
	Param               string // Such as "mtl.ofi.layout=packed"; empty if there is none.
	CIDBits, SourceBits int    // Widths with that value.
}

// MinControlLimit is the smallest ControlLimit that a module may have.
const MinControlLimit = 128

// Description says for people what a module uses.
type Description struct {
	Provider string   // "tcp;ofi_rxm"; empty where the module has nothing to choose from
	Device   string   // "eth0", "mlx5_0"
	Mode     string   // how it lays out tags: "source in completion data", "packed 24/18/20"
	Library  string   // name and version of the library below; may be empty
	Notes    []string // what else a user should know, such as what a name was taken for
	// Candidates is all that was considered, with what became of it.
	Candidates []Candidate
}

// A Candidate is one thing that a module could use: a provider and a domain, say.
type Candidate struct {
	Name     string // "tcp;ofi_rxm on eth0"
	Provider string // "tcp;ofi_rxm": what provider_include would name; empty where there is no choice
	Chosen   bool
	// Unavailable: the provider offers nothing here, and no parameter changes that.
	Unavailable bool
	// Hangs: it is Unavailable because it was asked, and did not answer in time.
	Hangs bool
	// Refused: it is there, and Open does not try it, because of a parameter or of a
	// defect that is known.
	Refused bool
	Defect  bool   // it is Refused because of a defect that is known
	Failed  bool   // Open has tried it, and it did not open or failed its test.
	Reason  string // why it was chosen, or not
	Library string // name and version of the library that offers it; may be empty
}

// Endpoint names a connected process to the module that returned it. It is valid
// until Forget.
type Endpoint uint32

// NoEndpoint is no process. Whatever is asked of it is refused with an error, so that
// an endpoint which was never set is nobody's.
const NoEndpoint Endpoint = 0

// Envelope is what is matched.
type Envelope struct {
	// CID is the communicator's id at the process that receives: a sender uses the
	// receiver's, and a receiver its own.
	CID uint32
	// Source is the sender's rank in the communicator. In a receive or a probe it
	// may be AnySource.
	Source int32
	// Tag is the user's tag. In a receive or a probe it may be AnyTag.
	Tag int32
	// Endpoint is the number of the source in its process, not an address such as the type
	// Endpoint. A module with MatchesRank ignores it, and so does a receive or a probe from
	// any source.
	Endpoint uint16
}

// Mode is how a send completes.
type Mode uint8

const (
	Standard    Mode = iota // when the buffer may be used again
	Synchronous             // when a receive has matched the message, too
)

// Op is one operation in progress. A protocol embeds it in its own request,
// sets Owner once, and uses it again and again.
type Op struct {
	Owner Owner
	// Result is set when Owner.Done is called, and is the protocol's from then on.
	Result
	// Slot is the module's own while the operation is in progress.
	Slot uint32
}

// A Finisher is a module that may go on receiving until its messages are whole (ask
// through framework.As).
type Finisher interface {
	// Finish withdraws all receives, and returns when none has matched that is not over, or
	// after some time in which that did not come about. From then on nothing writes into a
	// receive's buffer. Done is called for nobody. Close is next. Called as Close is.
	Finish()
}

// A Looker is a module that receives a message which is about to come by fewer calls (ask
// through framework.As).
type Looker interface {
	// RecvLook is Recv, and then Poll until something is over, or for about as long as looks Polls
	// that find nothing. op may be over when it returns, and others.
	RecvLook(op *Op, from Endpoint, e Envelope, buf []byte, looks int) error
}

// A Keeper is a module that saves the contents of received messages of one length (ask through
// framework.As). Several receives may complete before the module tells of the first, and a program
// may use one buffer for all of them: it then holds only the last message.
type Keeper interface {
	// Keep has messages of n bytes kept, up to MostKept. Called once, before anything is received.
	Keep(n int)

	// Kept returns the message of a receive, posted with room for n bytes, that has completed with
	// that length, or nil if it was not kept. It is valid until the next call to the module.
	// Called from Owner.Done of op, before other operations start.
	Kept(op *Op) []byte
}

// MostKept is the length of the longest message that is kept.
const MostKept = 64

// A Registrar is a module whose network reads and writes memory by itself, and has less to
// do where it knows that memory (ask through framework.As). Buffers in it are
// given to operations like any other: the module sees where they lie.
type Registrar interface {
	// Register has the network know memory, at least a byte, that stays until Deregister or Close. op
	// is over when that is so. An Err that wraps framework.ErrUnsupported: the network does not know it, and
	// operations there go on as elsewhere.
	Register(op *Op, memory []byte) error

	// Deregister takes exactly what Register was given, and is known; anything else is an error, and
	// nothing happens. ErrPending likewise, while an operation uses it. op is over when the
	// network knows it no more, or, with Found, when it is certain that it may go on reading it until
	// Close, for a send to a process that was forgotten: then the memory has to stay.
	Deregister(op *Op, memory []byte) error
}

// Owner is the protocol's side of an Op.
type Owner interface {
	// Done says that op is over. It may start operations, with op too. It does not
	// call Poll or Close.
	Done(op *Op)
}

// Result is the outcome of an operation.
type Result struct {
	// Source and Tag are those of the message that was received or found. They
	// have no meaning for a send, or when Canceled or Err are set, except that
	// framework.ErrTruncate leaves them as they are.
	Source, Tag int32
	// Found is a probe's answer, and Deregister's.
	Found bool
	// Canceled: the operation was withdrawn because Cancel asked for it, and
	// transferred nothing. What a network gives up by itself has an Err.
	Canceled bool
	// Bytes is the full length of the message that was received or found.
	Bytes int64
	// Err says that the operation has failed. framework.ErrTruncate: the message
	// was received, its beginning is in the buffer, and nothing beyond. Otherwise a
	// *framework.TransportError.
	Err error
}

// A Module moves and matches messages for this process. It is a progress.Source:
// Poll completes operations, hands up control messages, and returns how many
// there were of both. It may also say how it is awaited (progress.Bell,
// progress.Descriptor, progress.Polled).
//
// When a module as a whole fails, every operation in progress completes with the
// error, and calls return it from then on.
type Module interface {
	progress.Source

	Caps() Caps

	// Describe says what the module uses. May be called without the lock.
	Describe() Description

	// Offer is a text that is equal in processes whose modules understand one
	// another: provider, layout, versions. It is fixed once the module is open. May
	// be called without the lock.
	Offer() string

	// Blob returns the module's entry for the business card: what a peer's module
	// needs to Connect, its offer included. It is fixed once the module is open.
	// May be called without the lock.
	Blob() []byte

	// Reach reports why the module does not reach peer, in words for `ferry
	// explain`, or nil if Connect would be likely to succeed. Where the offers
	// differ it names both. It keeps nothing.
	Reach(peer framework.Peer) error

	// Connect makes peer known, this process included. It sends nothing: the
	// network connects when the first message goes there, or comes. The same life has
	// one Endpoint. An error is like Reach's; nothing is kept then.
	Connect(peer framework.Peer) (Endpoint, error)

	// Forget says that the process at to is dead for certain, or that nobody will
	// send there again. Sends to it that are in progress complete with an error
	// that wraps why, in the next Poll, and later ones fail with it. (What a network
	// library still holds of their buffers it may read, and not write, until it lets
	// go; the module sees to it that this is harmless.) Receives stay: the protocol
	// cancels those that are in vain. What of its messages is still there, is lost.
	Forget(to Endpoint, why error)

	// Send sends buf. e.Source is this process's rank. done: the message is on its
	// way, buf is the caller's again, and op was not used; never with Synchronous.
	// An error that wraps ErrTooLong, or the module's failure or that of the peer:
	// nothing was sent. Cancel of a send may do nothing.
	Send(op *Op, to Endpoint, e Envelope, buf []byte, mode Mode) (done bool, err error)

	// Recv posts a receive into buf. from is where e.Source is reached; it is
	// ignored when that is AnySource.
	Recv(op *Op, from Endpoint, e Envelope, buf []byte) error

	// Probe looks for a message that Recv would receive now, and tells by
	// Result.Found, Source, Tag and Bytes. It looks once; messages that the module
	// has not seen before the next Poll may go unseen. It does not find a message that
	// matches a receive posted earlier; receives that match other messages hide nothing
	// from it, however many they are. With claim a message that
	// was found is taken out of matching and belongs to op, which is used for
	// nothing but RecvClaimed then, once.
	Probe(op *Op, from Endpoint, e Envelope, claim bool) error

	// RecvClaimed receives the message that a probe with op has claimed. It can't
	// be canceled. An error, too, is the end of the message.
	RecvClaimed(op *Op, buf []byte) error

	// Cancel withdraws a receive that is in progress, if it has not matched. The
	// outcome is certain: Done comes, from a Poll, either with Canceled and no
	// message, or as if nothing had been asked. Canceling twice, or what is in
	// progress no more, does nothing. Receives are withdrawn in the order of the calls:
	// none before one whose Cancel came earlier.
	Cancel(op *Op)

	// SendControl sends a control message: it is not matched, and arrives at the
	// peer's Receiver.Control without further calls there than Poll's. Those from one
	// process to another may overtake its messages, and one another. data is at most
	// ControlLimit bytes, and not empty. done and err are as in Send.
	SendControl(op *Op, to Endpoint, data []byte) (done bool, err error)

	// Idle reports whether nothing is left here that only this process can bring on
	// its way: a session that closes polls until then. It may have the module send
	// what it needs to find out.
	Idle() bool

	// Close frees all. Operations in progress, and receives of control messages, are
	// given up: Done is not called for them, nothing comes up any more, and their
	// buffers are the caller's when Close returns. Called without the engine's lock,
	// after the engine has stopped polling the module. Closing again does nothing.
	Close() error
}
