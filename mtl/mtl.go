// Package mtl is the contract of matching transport layers: modules that move messages between processes and match them with
// receives, often in network hardware. PML cm runs over any module.
//
// # Matching
//
// A message carries a communicator id, the rank of its sender and a tag. A receive has an id, a rank or AnySource, and a tag or
// AnyTag. The id is opaque to the module. The protocol assigns different ids to contexts that must never match, such as the planes of
// a communicator, so that AnyTag means any tag of one plane. The module encodes the three fields into the match bits of its network, and
// reports their widths in Caps.
//
// A process may have several ranks of a communicator. Each has its own id, and an endpoint, its number in the process. A module
// matches the rank of a source, or its process and endpoint (Caps.MatchesRank).
//
// Messages from one process with the same id match in the order of their sends, and receives in the order in which they were posted
// (MPI-4.1 section 3.5). This includes synchronous sends.
//
// # Calling rules
//
// Every method of a Module is called with the progress engine's lock held, unless its comment says otherwise, so a module needs no
// lock of its own. No method blocks, and none fails for lack of space: the module queues operations that the network does not accept,
// in order, and a later Poll starts them. Receives of one id never wait for those of another. In steady state no operation allocates
// memory.
//
// # Operations
//
// An Op is one operation. The module owns it from the call that starts it until the module calls its owner's Done, once for each
// start, from Poll. Meanwhile the Op must not move in memory or to another module. A call that returns an error, or reports that the
// operation is done, does not keep the Op.
//
// # Messages of failed processes
//
// A message up to Caps.Eager is complete when a probe finds it. A part of a longer one stays with its sender until it is received, and is
// lost if the sender fails. The receive of such a message returns an error, from the call or by Done, and never memory of another
// process. A module requests nothing from a process that was forgotten (Forget). Before Forget, possibly only the network knows of the
// failure, or nothing does.
//
// A probe, with claim too, requests nothing from the sender. A protocol therefore takes the messages of a failed process by claiming
// probes. It posts no more receives that could match them, because the provider's behavior is undefined then.
//
// # Buffers
//
// The module owns the buffer of an operation as long as it owns the Op, and keeps no pointer to it afterwards. A buffer is memory that
// Go code may address, on the Go heap or not. A module that passes it to a C library pins it.
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

// ErrTooLong is wrapped by the error of a message above Caps.MaxMessage. Nothing of it was sent.
var ErrTooLong = errors.New("message longer than the transport takes")

// Component is a registered MTL.
type Component interface {
	framework.Component
	// Open makes the module of this process. It may reserve memory and descriptors, and test its choice within this process. It
	// contacts no peer. Called without the engine's lock.
	Open(ctx context.Context, env Env) (Module, error)
}

// Surveyor is an optional interface of a Component. It lists the providers on this machine and elsewhere, for `ferry info` and
// `ferry matrix`. Such a component has a parameter provider_include, a list of names of providers.
//
// A provider may crash a process that only lists its offers. To survive that, call Providers, and Survey in a separate process for each
// provider with only that one included.
type Surveyor interface {
	// Providers returns the names for provider_include: all providers of the library below, with or without an offer on this machine,
	// and those of other machines. It queries none of them. It returns when ctx ends.
	Providers(ctx context.Context, params any) ([]string, error)

	// Survey returns a Candidate for each choice of Open, in the order of trial, followed by one that is Unavailable for each provider
	// without an offer. If params include providers, only those are queried. It returns when ctx ends.
	Survey(ctx context.Context, params any) ([]Candidate, error)

	// LogEnvironment returns variables ("NAME=value") for a new process. With them the library below logs its findings to standard
	// error.
	LogEnvironment() []string

	// LogReason returns the reason in such a log why provider offers nothing, in the library's words, or "".
	LogReason(provider, log string) string
}

// Env is the environment of a module.
type Env struct {
	// The assembly adds the module to its Engine.
	progress.Env
	// Params is the filled result of Component.Params.
	Params any
	Upcall Receiver
	// IsUnrequested is set if no MTL was requested. The module is opened because this machine has network hardware
	// (framework.Verdict.Network). It uses that hardware, or Open fails.
	IsUnrequested bool
}

// Receiver receives the upcalls of a module. All calls come from the module's Poll or RecvAndPoll, with the engine's lock held.
type Receiver interface {
	// Control handles one control message. data is valid until it returns. Any process that has the module's address may send one, and
	// the message itself names its sender, so the protocol must validate it. The module posts the receive buffer again in any case.
	Control(data []byte)

	// Endpoint returns the endpoint of the member source of the communicator with the id cid in this process. A module calls it to
	// acknowledge a synchronous message that matched a receive from any source. ok is false if there is no such member, or no longer; the
	// message is not acknowledged then. Endpoint may call Connect.
	Endpoint(cid uint32, source int) (to Endpoint, ok bool)
}

// Caps are the capabilities of a module. They are constant once the module is open.
type Caps struct {
	// Widths of the matched fields. A process uses ids below 1<<CIDBits, ranks below 1<<SourceBits and tags from 0 to
	// 1<<TagBits - 1. CIDBits is at most 32, the others at most 31.
	CIDBits, SourceBits, TagBits int

	// MatchesRank is set if a receive or a probe with a source matches its rank, so that several ranks of a process are
	// distinct. Otherwise it matches the source's process and endpoint.
	MatchesRank bool
	// EndpointBits is the width of endpoints in the tag format, at most 16. Without MatchesRank a process uses endpoints below
	// 1<<EndpointBits. With 0 it has only endpoint 0.
	EndpointBits int
	// RankSetting would make a module without MatchesRank match ranks.
	RankSetting RankSetting

	// MaxMessage is the length of the longest message, in bytes.
	MaxMessage int64
	// Inject is the length in bytes up to which Send is usually done when it returns.
	Inject int
	// Eager is the length in bytes up to which a message is complete when a probe finds it.
	Eager int64
	// ControlLimit is the length of the longest control message, in bytes, at least MinControlLimit.
	ControlLimit int
}

// RankSetting is a parameter that makes a module match ranks. All processes of a job need the same value.
type RankSetting struct {
	// Param is the setting, such as "mtl.ofi.layout=packed", or empty if there is none.
	Param string
	// CIDBits and SourceBits are the widths with that setting.
	CIDBits, SourceBits int
}

// MinControlLimit is the smallest permitted ControlLimit.
const MinControlLimit = 128

// Description describes the module for people.
type Description struct {
	// Provider is the provider in use, such as "tcp;ofi_rxm". It is empty if the module has no choice.
	Provider string
	// Device is the network interface or device, such as "eth0" or "mlx5_0".
	Device string
	// Mode is the layout of tags, such as "source in completion data" or "packed 24/18/20".
	Mode string
	// Library is the name and version of the library below, or empty.
	Library string
	// Notes are further facts for users, such as the resolution of a name.
	Notes []string
	// Candidates are all choices, with the verdicts about them.
	Candidates []Candidate
}

// A Candidate is a possible choice of a module, such as a provider on a domain.
type Candidate struct {
	Name string // "tcp;ofi_rxm on eth0"
	// Provider is the name for provider_include, such as "tcp;ofi_rxm". It is empty if there is no choice.
	Provider string
	Chosen   bool
	// Unavailable is set if the provider has no offer here, and no parameter changes that.
	Unavailable bool
	// Hangs is set if an Unavailable provider did not reply in time.
	Hangs bool
	// Refused is set if Open does not try the candidate, because of a parameter or a known defect.
	Refused bool
	// Defect is set if a candidate is Refused for a known defect.
	Defect bool
	// Failed is set if Open tried the candidate, and it did not open or failed its test.
	Failed bool
	// Reason is the reason for or against the candidate.
	Reason string
	// Library is the name and version of the library that offers it, or empty.
	Library string
}

// Endpoint names a connected process to the module that returned it. It is valid
// until Forget.
type Endpoint uint32

// NoEndpoint is no process. Operations with it fail, so that an endpoint which was never set reaches no process.
const NoEndpoint Endpoint = 0

// Envelope contains the matched fields of a message or a receive.
type Envelope struct {
	// CID is the communicator's id in the process that receives. A sender uses the receiver's id, and a receiver its own.
	CID uint32
	// Source is the sender's rank in the communicator. In a receive or a probe it may be AnySource.
	Source int32
	// Tag is the user's tag. In a receive or a probe it may be AnyTag.
	Tag int32
	// Endpoint is the number of the source in its process. It is unrelated to the type Endpoint. A module with MatchesRank ignores it, and
	// so does a receive or a probe from any source.
	Endpoint uint16
}

// Mode is the condition for the completion of a send.
type Mode uint8

const (
	// The send completes when the buffer may be reused.
	Standard Mode = iota
	// The send completes when the buffer may be reused and a receive has matched the message.
	Synchronous
)

// Op is one operation in progress. A protocol embeds it in its own request, sets Owner once, and reuses it.
type Op struct {
	Owner Owner
	// Result is valid from the call of Owner.Done on. The protocol owns it then.
	Result
	// Slot belongs to the module while the operation is in progress.
	Slot uint32
}

// Finisher is an optional interface of a module that must complete half-received messages before Close (framework.As).
type Finisher interface {
	// Finish cancels all receives and blocks until no matched one is incomplete, or until a time limit. Nothing writes into a buffer of a
	// receive afterwards. It does not call Done. Only Close may follow. It has the calling rules of Close.
	Finish()
}

// ImmediateReceiver is an optional interface of a module that receives an imminent message with fewer calls (framework.As).
type ImmediateReceiver interface {
	// RecvAndPoll is Recv followed by Poll, until an operation completes or for about the duration of that many empty polls. op and
	// other operations may be complete when it returns.
	RecvAndPoll(op *Op, from Endpoint, e Envelope, buf []byte, emptyPolls int) error
}

// MessageSaver is an optional interface of a module that saves the contents of received messages of one length (framework.As). Several receives
// may complete before the module reports the first, and a program may use one buffer for all of them, which then holds only the last
// message.
type MessageSaver interface {
	// SaveMessages saves the contents of messages of n bytes, up to MaxSavedMessage. It is called once, before any receive.
	SaveMessages(n int)

	// SavedMessage returns the message of a receive that was posted with n bytes and completed with n bytes, or nil if it was not saved. The result
	// is valid until the next call of the module. It is called from Owner.Done of op, before other operations start.
	SavedMessage(op *Op) []byte
}

// MaxSavedMessage is the length of the longest message that MessageSaver saves.
const MaxSavedMessage = 64

// Registrar is an optional interface of a module whose network accesses memory directly, and has less work for registered memory
// (framework.As). Buffers in such memory are passed to operations like any others.
type Registrar interface {
	// Register registers memory of at least a byte until Deregister or Close. op completes with the registration. An Err that wraps
	// framework.ErrUnsupported means that the network does not register it. Operations in that memory remain possible.
	Register(op *Op, memory []byte) error

	// Deregister takes memory exactly as passed to a completed Register. It returns an error and has no effect for other memory, and with
	// ErrPending while an operation uses it. op completes when the network no longer knows the memory. It completes with Found if the network
	// may read the memory until Close, for a send to a process that was forgotten. The memory must remain valid then.
	Deregister(op *Op, memory []byte) error
}

// Owner is the protocol's part of an Op.
type Owner interface {
	// Done reports the completion of op. It may start operations, also with op. It must not call Poll or Close.
	Done(op *Op)
}

// Result is the outcome of an operation.
type Result struct {
	// Source and Tag are those of the message that was received or found. They are undefined for a send, and if Canceled or
	// Err is set, except for framework.ErrTruncate.
	Source, Tag int32
	// Found is the result of a probe and of Deregister.
	Found bool
	// Canceled is set if the operation was withdrawn by Cancel, and transferred nothing. A withdrawal by the network has an Err.
	Canceled bool
	// Bytes is the full length of the message that was received or found.
	Bytes int64
	// Err is the error of a failed operation. With framework.ErrTruncate the message was received, and the buffer holds its
	// beginning. Other errors are of type *framework.TransportError.
	Err error
}

// A Module moves and matches messages for this process. It is a progress.Source: Poll completes operations, passes control messages
// upwards, and returns the number of both. It may also implement progress.Bell, progress.Descriptor or progress.Polled.
//
// After a failure of the module as a whole, every operation in progress completes with the error, and calls return it.
type Module interface {
	progress.Source

	Caps() Caps

	// Describe may be called without the lock.
	Describe() Description

	// Offer returns a text that is equal in processes whose modules are compatible: provider, layout, versions. It is constant once the
	// module is open. May be called without the lock.
	Offer() string

	// Blob returns the module's entry for the business card, which a peer's module needs to Connect. It includes the offer, and is constant
	// once the module is open. May be called without the lock.
	Blob() []byte

	// Reach returns the reason why the module cannot reach peer, for `ferry explain`, or nil if Connect would probably succeed. If the offers
	// differ it contains both. It has no side effects.
	Reach(peer framework.Peer) error

	// Connect makes peer known, which may be this process. It sends nothing: the network connects with the first message in either
	// direction. Each incarnation has one Endpoint. Errors are like those of Reach, and have no side effects.
	Connect(peer framework.Peer) (Endpoint, error)

	// Forget reports that the process at to has failed, or that no more messages will be sent to it. Sends to it in progress complete with an
	// error that wraps why, in the next Poll, and later ones fail with it. A network library may still read, and not write, their buffers; the
	// module makes that harmless. Receives remain, and the protocol cancels those that cannot match. Parts of its messages that
	// the process still has are lost.
	Forget(to Endpoint, why error)

	// Send sends buf. e.Source is this process's rank. done reports that the message is in flight, the caller owns buf again, and op was not
	// used; never with Synchronous. An error means that nothing was sent. It wraps ErrTooLong, or is the failure of the module or the
	// peer. Cancel may have no effect on a send.
	Send(op *Op, to Endpoint, e Envelope, buf []byte, mode Mode) (done bool, err error)

	// Recv posts a receive into buf. from is the endpoint of e.Source, and is ignored for AnySource.
	Recv(op *Op, from Endpoint, e Envelope, buf []byte) error

	// Probe reports a message that Recv would receive now, by Result.Found, Source, Tag and Bytes. It polls once, and may miss messages that
	// arrive with the next Poll. It does not find a message that matches a receive posted earlier. Receives that match other messages hide
	// nothing from it. With claim, a message that was found is removed from matching and belongs to op, which must be used next for
	// RecvClaimed, once.
	Probe(op *Op, from Endpoint, e Envelope, claim bool) error

	// RecvClaimed receives the message that a probe with op has claimed. It cannot be canceled. After an error the message is lost.
	RecvClaimed(op *Op, buf []byte) error

	// Cancel withdraws a receive in progress that has not matched. Done follows from a Poll, with Canceled and no message, or as if Cancel
	// had not been called. It has no effect on a canceled or completed receive. Receives are withdrawn in the order of the calls.
	Cancel(op *Op)

	// SendControl sends a control message. It is not matched, and arrives at the peer's Receiver.Control without calls other than Poll. Control
	// messages may overtake messages and one another. data has 1 to ControlLimit bytes. done and err are as in Send.
	SendControl(op *Op, to Endpoint, data []byte) (done bool, err error)

	// Idle reports whether no data remains that leaves only if this process polls. A closing session polls until then. It may send
	// messages to find out.
	Idle() bool

	// Close releases all resources. Operations in progress, and receives of control messages, end without Done. There are no more upcalls, and
	// the caller owns the buffers when Close returns. Called without the engine's lock, after the engine has stopped polling the
	// module. Further calls have no effect.
	Close() error
}
