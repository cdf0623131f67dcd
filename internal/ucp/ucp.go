// Package ucp calls UCX, the library for InfiniBand, RoCE, GPUs and shared memory that
// OpenUCX makes, from version 1.13 on. The library is loaded at run time, so that one
// binary runs with and without it.
//
// It is thin: it decides nothing, waits for nothing and keeps no Go memory; what UCX does
// with memory after a call returns is its caller's business, who pins it. Short
// messages are sent from C memory: they need no pin. UCX's callbacks stay in C, and fill a
// queue that Poll empties. It is compiled without UCX's headers; without cgo
// Load says that there is nothing to load.
//
// Calls on one Worker come one at a time. None of them blocks, in so far as UCX keeps its
// promises; Load and Open may take long.
package ucp

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrNotBuilt is wrapped by Load's error where nothing can be loaded because this
// program was compiled without what it takes.
var ErrNotBuilt = errors.New("compiled without UCX support")

// Oldest is the oldest version that this package is tested with.
var Oldest = Version{Major: 1, Minor: 13}

// Status is a result of UCX's: 0 is success, and errors are negative.
type Status int32

// The errors that mean something to callers.
const (
	NoMemory    Status = -4
	Unreachable Status = -6 // no transport leads there
	Truncated   Status = -9 // the message is longer than the buffer
	NoDevice    Status = -14
	Canceled    Status = -16
	// EndpointTimeout is the end of an endpoint whose host did not answer.
	EndpointTimeout Status = -80

	NoResult Status = 1 // A call reported success without a result.
)

// Error says which call failed, and how.
type Error struct {
	Call string
	Code Status
	Text string // UCX's
}

func (e *Error) Error() string {
	if e.Code == NoResult {
		return e.Call + ": success without a result"
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
}

// A Setting is one of UCX's variables, without UCX_ before its name. It comes before
// the environment's.
type Setting struct{ Name, Value string }

// A Resource is a transport on a device, such as rc_mlx5 on mlx5_0:1.
type Resource struct{ Transport, Device string }

func (r Resource) String() string { return r.Transport + "/" + r.Device }

// SlotsAtOnce is how many slots Grow makes.
const SlotsAtOnce = 256

// Short is the length, in bytes, up to which Send copies a message.
const Short = 1024

// Now is the length, in bytes, up to which SendNow may send a message.
const Now = 64

// Into says how the buffer of a receive is given to UCX.
type Into int32

const (
	// Cut keeps the beginning of a longer message. Above Short bytes it looks first whether the message is
	// there: one that fits is received as by Whole.
	Cut Into = iota
	// Whole is for a message that is not longer, or whose beginning nobody wants: it ends with Truncated.
	Whole
	// Abandonable is as Cut, and UCX never knows the buffer: see Worker.Abandon.
	Abandonable
)

// MostKept is the length, in bytes, of the longest message that Keep has kept.
const MostKept = 64

// An Event is the end of one operation, or of an endpoint. Its layout is that of
// ferry_ucp_event in shim.h.
type Event struct {
	Tag, Length uint64 // of a message that was received: its whole length
	Slot        uint32 // NoSlot: an endpoint has failed
	Peer        uint32 // whose
	Err         Status
	_           int32
}

// NoSlot is the number of no slot.
const NoSlot = ^uint32(0)

// Version is a version of the library.
type Version struct{ Major, Minor, Release int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Release) }

// Before reports whether v is older than w, releases aside.
func (v Version) Before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// loadError makes one line of what the dynamic linker says.
func loadError(path, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, path+":"))
	return fmt.Errorf("%s can't be loaded: %s", path, why)
}

// resourceLine is how ucp_context_print_info lists a transport on a device.
var resourceLine = regexp.MustCompile(`(?m)^#?\s*resource\s+\d+\s*:.*\s([^\s/]+)/(\S+)\s*$`)

// parseResources finds the resources in what UCX says of a context.
func parseResources(info string) (all []Resource) {
	for _, m := range resourceLine.FindAllStringSubmatch(info, -1) {
		all = append(all, Resource{m[1], m[2]})
	}
	return all
}
