// Package libfabric calls libfabric, the library for high-speed networks of the
// OpenFabrics Interfaces, from version 1.17 on. The library is loaded at run
// time, so that one binary runs with and without it.
//
// It is thin: it decides nothing, waits for nothing and keeps no Go memory; what
// a network library does with memory after a call returns is its caller's
// business, who pins it. It is compiled without libfabric's headers; without cgo Load says
// that there is nothing to load.
//
// Calls on one Endpoint come one at a time. None of them blocks, in so far as the
// provider below keeps its promises; those of Library may take long, and a broken
// provider may not return from them at all.
package libfabric

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotBuilt is wrapped by Load's error where nothing can be loaded because this
// program was compiled without what it takes.
var ErrNotBuilt = errors.New("compiled without libfabric support")

// Oldest is the oldest version that this package is tested with, and asks for.
var Oldest = Version{1, 17}

// Errno is a libfabric error number; 0 is success.
type Errno int32

// The error numbers that mean something to callers.
const (
	Again       Errno = 11 // no room: try again after Poll
	NoMemory    Errno = 12
	NoMessage   Errno = 42  // a peek found nothing
	NoData      Errno = 61  // nothing of what was asked for exists
	Unreachable Errno = 113 // no way leads there
	Canceled    Errno = 125 // the operation was canceled
	Truncated   Errno = 265 // the message is longer than the buffer

	noResult Errno = 1 << 20 // A call reported success without a result.
)

// Error says which call failed, and how.
type Error struct {
	Call string
	Code Errno
	Text string // libfabric's
}

func (e *Error) Error() string {
	if e.Code == noResult {
		return e.Call + ": success without a result"
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
}

// Formats of addresses (fi_getinfo(3)).
const (
	SocketAddress uint32 = 1 // the first one of socket addresses, and of no family in particular
	IPv4Address   uint32 = 2
	IPv6Address   uint32 = 3
	IBAddress     uint32 = 4 // the last one of socket addresses
	TextAddress   uint32 = 9
)

// Info is one way to use the network: a provider on a domain, which is a network
// interface or part of it. Of sizes and limits math.MaxInt means that there is none.
type Info struct {
	Provider, Fabric, Domain string

	TagFormat     uint64 // which bits a tag has: those from the highest that is set
	MaxMessage    uint64 // bytes
	Inject        int    // bytes
	CQData        int    // bytes of completion data that travel with a message
	TxSize        int    // operations that its queues take
	RxSize        int
	RxParts       int // buffers that one receive may have
	AddressFormat uint32
	Address       []byte // its own, as far as it is known before an endpoint is open
	LocalOnly     bool   // says itself that it does not leave the node
	Directed      bool   // receives from one peer are matched by address
	Registers     bool   // it takes buffers that are registered, and no others
	PCI           string // of the interface, "0000:3b:00.0"; empty if not known

	raw handle
}

// String names provider and domain, and the network where that tells more.
func (i *Info) String() string {
	s := i.Provider + " on " + i.Domain
	if i.Fabric != "" && i.Fabric != i.Domain {
		s += " (" + i.Fabric + ")"
	}
	return s
}

// How a message is sent or received.
type Kind int32

const (
	WithData Kind = 1 << iota // completion data travels along
	Inject                    // the buffer is free on return, and no Event comes
	Claim                     // a peek takes the message that it finds; a receive gets it
	Spill                     // what is longer than a receive's buffer goes elsewhere, as if it were received; needs two RxParts
)

// SpillBytes is how much goes elsewhere at most.
const SpillBytes = 64 << 10

// AnyAddress receives from everybody.
const AnyAddress = ^uint64(0)

// An Event is the completion of one operation. Its layout is that of ferry_event
// in shim.h.
type Event struct {
	Tag, Data uint64
	Length    uint64 // bytes received, those that were spilt too; in a peek the message's
	Overflow  uint64 // bytes that did not fit, with Truncated
	Slot      uint32 // NoSlot in an error that belongs to no operation
	Err       Errno
	Provider  int32 // the provider's own error number
	_         int32
}

// NoSlot is the number of no slot.
const NoSlot = ^uint32(0)

// Version is a version of the library.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// After reports whether v is newer than w.
func (v Version) After(w Version) bool {
	return v.Major > w.Major || v.Major == w.Major && v.Minor > w.Minor
}

// loadError makes one line of what the dynamic linker says.
func loadError(path, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, path+":"))
	return fmt.Errorf("%s can't be loaded: %s", path, why)
}
