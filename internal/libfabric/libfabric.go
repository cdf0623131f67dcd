// Package libfabric calls libfabric, the library for high-speed networks of the OpenFabrics Interfaces, from version 1.17 on. It loads the library at
// run time, so that one binary runs with and without it.
//
// The package is a thin layer without policy. It never waits, and keeps no Go memory. The caller must pin memory that the library uses after a call
// returns. The package needs no headers of libfabric. Without cgo, Load returns ErrNotBuilt.
//
// Calls on one Endpoint must not overlap. They don't block, unless the provider violates its interface. Calls of Library may block for long, and
// never return with a broken provider.
package libfabric

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotBuilt is wrapped by the error of Load if the program was compiled without cgo.
var ErrNotBuilt = errors.New("compiled without libfabric support")

// Oldest is the oldest tested version. It is the version that Load requests.
var Oldest = Version{1, 17}

// Errno is a libfabric error number; 0 is success.
type Errno int32

// The error numbers that callers handle.
const (
	// The operation found no space. It may be repeated after Poll.
	Again    Errno = 11
	NoMemory Errno = 12
	// A peek found no message.
	NoMessage Errno = 42
	// There is no such object.
	NoData Errno = 61
	// There is no route to the peer.
	Unreachable Errno = 113
	// The operation was canceled.
	Canceled Errno = 125
	// The message is longer than the buffer.
	Truncated Errno = 265

	noResult Errno = 1 << 20 // A call reported success without a result.
)

// Error is the error of a call.
type Error struct {
	Call string
	Code Errno
	// Text is libfabric's text for Code.
	Text string
}

func (e *Error) Error() string {
	if e.Code == noResult {
		return e.Call + ": success without a result"
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
}

// Formats of addresses (fi_getinfo(3)).
const (
	SocketAddress uint32 = 1 // Any family; the first format of socket addresses.
	IPv4Address   uint32 = 2
	IPv6Address   uint32 = 3
	IBAddress     uint32 = 4 // The last format of socket addresses.
	TextAddress   uint32 = 9
)

// Info is a provider on a domain, which is a network interface or a part of it. In sizes and limits math.MaxInt means no limit.
type Info struct {
	Provider, Fabric, Domain string

	// TagFormat has a bit set in each field of a tag. The highest one is the width of tags.
	TagFormat uint64
	// MaxMessage and Inject are lengths in bytes.
	MaxMessage uint64
	Inject     int
	// CQData is the number of bytes of completion data in a message.
	CQData int
	// TxSize and RxSize are the numbers of operations in the queues.
	TxSize int
	RxSize int
	// RxParts is the largest number of buffers of a receive.
	RxParts       int
	AddressFormat uint32
	// Address is that of this process, if it is known before an endpoint is open.
	Address []byte
	// IsLocalOnly is set if the provider reports that it reaches only its node.
	IsLocalOnly bool
	// HasDirectedReceive is set if receives may have the address of a peer.
	HasDirectedReceive bool
	// RequiresRegistration is set if the provider accepts only registered buffers.
	RequiresRegistration bool
	// PCI is the address of the interface, such as "0000:3b:00.0", or empty.
	PCI string

	raw handle
}

// String returns the provider and the domain, and the network if its name differs.
func (i *Info) String() string {
	s := i.Provider + " on " + i.Domain
	if i.Fabric != "" && i.Fabric != i.Domain {
		s += " (" + i.Fabric + ")"
	}
	return s
}

// Kind is a set of options of a send, a receive or a peek.
type Kind int32

const (
	// The message has completion data.
	WithData Kind = 1 << iota
	// The buffer is free on return, and there is no Event.
	Inject
	// A peek claims the message that it finds, and a receive takes the claimed message.
	Claim
	// The part of a message beyond the buffer is discarded, and counts as received. It requires two RxParts.
	DiscardExcess
)

// MaxDiscarded is the largest discarded part.
const MaxDiscarded = 64 << 10

// AnyAddress is the address of receives from any peer.
const AnyAddress = ^uint64(0)

// An Event is the completion of one operation. It has the layout of ferry_event in shim.h.
type Event struct {
	Tag, Data uint64
	// Length is the number of received bytes, including discarded ones. For a peek it is the length of the message.
	Length uint64
	// Overflow is the number of bytes that did not fit, with Truncated.
	Overflow uint64
	// Slot is NoSlot for an error that belongs to no operation.
	Slot uint32
	Err  Errno
	// Provider is the provider's error number.
	Provider int32
	_        int32
}

// NoSlot is an invalid slot number.
const NoSlot = ^uint32(0)

// Version is a version of the library.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// After reports whether v is newer than w.
func (v Version) After(w Version) bool {
	return v.Major > w.Major || v.Major == w.Major && v.Minor > w.Minor
}

// loadError returns an error with the message of the dynamic linker in one line.
func loadError(path, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, path+":"))
	return fmt.Errorf("%s cannot be loaded: %s", path, why)
}
