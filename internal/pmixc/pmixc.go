// Package pmixc calls libpmix, the client library of the Process Management Interface for exascale,
// version 4.1 or later. The library is loaded at run time, so that one binary runs with and without
// it, and compiling needs none of its files. abi.h describes the used part of its binary interface.
// Without cgo, Load returns an error.
//
// It has no policy, keeps no memory of C, and lends none of Go. libpmix is shared by a whole
// process, including other users of it.
//
// Calls with a context wait for libpmix's thread or its server, and libpmix may never return from
// them (a server that was stopped or killed). Each runs on a goroutine of its own. When the context
// ends first, the caller gets an error with the call and the context's cause. The goroutine and its
// thread remain until libpmix returns. There are at most MaxCalls of them, and further calls wait
// for one to end, as long as their contexts allow. A call without a caller still has its effect. A
// value is put, and a fence is entered.
package pmixc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNotBuilt is wrapped by the error of Load in a program without the support to load libraries.
var ErrNotBuilt = errors.New("compiled without libpmix support")

// Soname is the library's name since PMIx 2.
const Soname = "libpmix.so.2"

// OldestVersion is the oldest version whose interface abi.h describes.
var OldestVersion = Version{4, 1, 0}

// MaxCalls limits the calls in progress, and so the threads that libpmix can block.
const MaxCalls = 16

// Longest names, in bytes.
const (
	MaxNamespace = 255
	MaxKey       = 511
)

// Wildcard is the rank for values of a namespace instead of a process.
const Wildcard = ^uint32(0) - 1

// Keys of values that servers provide for a job, under the rank Wildcard.
const (
	JobSize    = "pmix.job.size" // Number of processes.
	LocalPeers = "pmix.lpeers"   // Ranks of the processes on this node, separated by commas.
)

// Status is the result of a call of libpmix, 0 for success, or the code of an event.
type Status int32

// Statuses that callers distinguish.
const (
	ProcAborted     Status = -7
	Timeout         Status = -24
	Unreachable     Status = -25
	NotFound        Status = -46
	NotSupported    Status = -47
	PartialSuccess  Status = -52  // Of a fence: a member has ended.
	LostConnection  Status = -61  // The server is lost.
	ProcUnsynced    Status = -200 // A process ended without finalize.
	ProcKilled      Status = -402 // By a signal.
	ProcExitNonzero Status = -404
)

// Error is a failed call.
type Error struct {
	Call string
	Code Status
	// Text of libpmix for Code.
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// Is reports whether err is an Error with that status.
func Is(err error, s Status) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == s
}

// Kind is the kind of a Value.
type Kind int

const (
	KindOther  Kind = iota // A type that this package does not read.
	KindNumber             // Of any width, because servers differ.
	KindText               // A string or bytes.
)

// A Value is the result of Get.
type Value struct {
	Kind Kind
	// Type of libpmix.
	Type   int
	Number int64
	Bytes  []byte
}

// Proc identifies a process.
type Proc struct {
	Namespace string
	Rank      uint32
}

// An Event is an event from the server.
type Event struct {
	Code Status
	// Affected process. Its namespace is empty if there is none.
	Proc Proc
}

// Version is a version of the library.
type Version struct{ Major, Minor, Release int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Release) }

// After reports whether v is newer than w.
func (v Version) After(w Version) bool {
	if v.Major != w.Major {
		return v.Major > w.Major
	}
	if v.Minor != w.Minor {
		return v.Minor > w.Minor
	}
	return v.Release > w.Release
}

// parseVersion parses a text of the library, such as "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, ...)".
// The version is the first word with dots.
func parseVersion(text string) (v Version, ok bool) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		parts := strings.SplitN(strings.TrimPrefix(word, "v"), ".", 4)
		if len(parts) < 2 {
			continue
		}
		numbers := []*int{&v.Major, &v.Minor, &v.Release}
		for i, p := range parts[:min(3, len(parts))] {
			digits := p[:len(p)-len(strings.TrimLeft(p, "0123456789"))]
			n, err := strconv.Atoi(digits)
			if err != nil {
				return Version{}, false
			}
			*numbers[i] = n
		}
		return v, true
	}
	return Version{}, false
}

// loadError formats a message of the dynamic linker.
func loadError(path, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, path+":"))
	return fmt.Errorf("%s can't be loaded: %s", path, why)
}

// callSlots has a value for each call in progress.
type callSlots chan struct{}

type callResult[T any] struct {
	value T
	err   error
}

// runCall runs a call that may never return.
func runCall[T any](ctx context.Context, s callSlots, call string, f func() (T, error)) (T, error) {
	var none T
	select {
	case s <- struct{}{}:
	default:
		select {
		case s <- struct{}{}:
		case <-ctx.Done():
			return none, fmt.Errorf("%s was not made: %d calls of libpmix have not returned: %w", call, MaxCalls, context.Cause(ctx))
		}
	}
	done := make(chan callResult[T], 1) // The caller may have left.
	go func() {
		v, err := f()
		<-s
		done <- callResult[T]{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done: // A result precedes the end of the context.
		return o.value, o.err
	default:
		return none, fmt.Errorf("%s has not returned: %w", call, context.Cause(ctx))
	}
}

// acquireAll waits until no other call is in progress, and blocks others until the release. It
// leaves one slot for the caller.
func (s callSlots) acquireAll(ctx context.Context, call string) (release func(), err error) {
	taken := 0
	release = func() {
		for range taken {
			<-s
		}
	}
	for range cap(s) {
		select {
		case s <- struct{}{}:
			taken++
		case <-ctx.Done():
			release()
			return nil, fmt.Errorf("%s was not made: other calls of libpmix have not returned: %w", call, context.Cause(ctx))
		}
	}
	<-s
	taken--
	return release, nil
}

// checkName refuses a name that libpmix would truncate.
func checkName(call, name string, most int) error {
	if len(name) == 0 || len(name) > most || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%s: a name of %d bytes: want 1 to %d, none of them 0", call, len(name), most)
	}
	return nil
}

// checkGroup refuses a group that would wait forever.
func checkGroup(call, namespace string, ranks []uint32, limit time.Duration) error {
	if err := checkName(call, namespace, MaxNamespace); err != nil {
		return err
	}
	if len(ranks) == 0 || limit <= 0 {
		return fmt.Errorf("%s: %d ranks and a limit of %v: want some, and a limit", call, len(ranks), limit)
	}
	return nil
}
