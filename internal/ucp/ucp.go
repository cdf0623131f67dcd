// Package ucp calls UCX, the library of OpenUCX for InfiniBand, RoCE, GPUs and shared memory, from version 1.13 on. It loads the library at run time, so
// that one binary runs with and without it.
//
// The package is a thin layer without policy. It never waits, and keeps no Go memory. The caller must pin memory that UCX uses after a call returns. Short
// messages are copied to C memory and need no pin. UCX's callbacks stay in C, and append to a queue that Poll empties. The package needs no headers
// of UCX. Without cgo, Load returns ErrNotBuilt.
//
// Calls on one Worker must not overlap. They don't block, unless UCX violates its interface. Load and Open may block for long.
package ucp

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrNotBuilt is wrapped by the error of Load if the program was compiled without cgo.
var ErrNotBuilt = errors.New("compiled without UCX support")

// Oldest is the oldest tested version.
var Oldest = Version{Major: 1, Minor: 13}

// Status is a result of UCX. 0 is success, and errors are negative.
type Status int32

// The errors that callers handle.
const (
	NoMemory Status = -4
	// No transport reaches the peer.
	Unreachable Status = -6
	// The message is longer than the buffer.
	Truncated Status = -9
	NoDevice  Status = -14
	Canceled  Status = -16
	// The host of an endpoint did not reply.
	EndpointTimeout Status = -80

	NoResult Status = 1 // A call reported success without a result.
)

// Error is the error of a call.
type Error struct {
	Call string
	Code Status
	// Text is UCX's text for Code.
	Text string
}

func (e *Error) Error() string {
	if e.Code == NoResult {
		return e.Call + ": success without a result"
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
}

// A Setting is one of UCX's variables, without the prefix UCX_. It overrides the environment.
type Setting struct{ Name, Value string }

// A Resource is a transport on a device, such as rc_mlx5 on mlx5_0:1.
type Resource struct{ Transport, Device string }

func (r Resource) String() string { return r.Transport + "/" + r.Device }

// SlotsPerGrow is the number of slots that AddSlots adds.
const SlotsPerGrow = 256

// MaxCopied is the length up to which Send copies a message, in bytes.
const MaxCopied = 1024

// MaxSendNow is the length of the longest message of SendNow, in bytes.
const MaxSendNow = 64

// BufferUse is the way UCX uses the buffer of a receive.
type BufferUse int32

const (
	// CutLonger keeps the beginning of a longer message. A receive above MaxCopied bytes first probes for its message, and receives one that
	// fits as with DropLonger.
	CutLonger BufferUse = iota
	// DropLonger is for a message that fits. A longer one is dropped, and the receive ends with Truncated.
	DropLonger
	// Abandonable is CutLonger without access of UCX to the buffer; see Worker.Abandon.
	Abandonable
)

// MaxSaved is the length of the longest message that SaveMessages saves, in bytes.
const MaxSaved = 64

// An Event is the completion of one operation, or the failure of an endpoint. It has the layout of ferry_ucp_event in shim.h.
type Event struct {
	// Tag and Length describe a received message. Length is its full length.
	Tag, Length uint64
	// Slot is NoSlot for the failure of an endpoint.
	Slot uint32
	// Peer is the number of a failed endpoint.
	Peer uint32
	Err  Status
	_    int32
}

// NoSlot is an invalid slot number.
const NoSlot = ^uint32(0)

// Version is a version of the library.
type Version struct{ Major, Minor, Release int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Release) }

// Before reports whether v is older than w. It ignores the release.
func (v Version) Before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// loadError returns an error with the message of the dynamic linker in one line.
func loadError(path, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, path+":"))
	return fmt.Errorf("%s cannot be loaded: %s", path, why)
}

// resourceLine matches a transport on a device in the output of ucp_context_print_info.
var resourceLine = regexp.MustCompile(`(?m)^#?\s*resource\s+\d+\s*:.*\s([^\s/]+)/(\S+)\s*$`)

// parseResources returns the resources in UCX's description of a context.
func parseResources(info string) (all []Resource) {
	for _, m := range resourceLine.FindAllStringSubmatch(info, -1) {
		all = append(all, Resource{m[1], m[2]})
	}
	return all
}
