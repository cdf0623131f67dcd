// Package pmixc calls libpmix, the client library of the Process Management Interface
// for exascale, from version 4.1 on. The library is loaded at run time, so that one
// binary runs with and without it, and nothing of it is needed to compile: abi.h says what
// is used of its binary interface. Without cgo, Load says so.
//
// It is thin: it decides nothing, and neither keeps C's memory nor lends Go's. libpmix
// serves a whole process, whoever in it initialises it.
//
// Calls that take a context wait for libpmix's thread, or for its server, and libpmix may
// not return from them at all (a server that was stopped or killed). Each runs on a
// goroutine of its own. When the context ends first the caller gets an error that names
// the call and wraps the context's cause; the goroutine, and the thread that it is on,
// stay until libpmix returns, perhaps for ever. There are at most MaxCalls of them: when
// all are taken, further calls wait for one, as long as their contexts allow. What a call
// without a caller still does, it does: a value is put, a fence is entered.
package pmixc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNotBuilt is wrapped by Load's error where nothing can be loaded because this
// program was compiled without what it takes.
var ErrNotBuilt = errors.New("compiled without libpmix support")

// Soname is the library's name. It has been the same since PMIx 2.
const Soname = "libpmix.so.2"

// Oldest is the oldest version whose interface abi.h describes.
var OldestVersion = Version{4, 1, 0}

// MaxCalls bounds the calls in progress, and with them the threads that libpmix can
// take away.
const MaxCalls = 16

// What fits into a name.
const (
	MaxNamespace = 255
	MaxKey       = 511
)

// Wildcard is the rank of what belongs to a namespace and no process of it.
const Wildcard = ^uint32(0) - 1

// Keys of what servers say of a job, under the rank Wildcard, and of a process.
const (
	JobSize    = "pmix.job.size" // number of processes
	LocalPeers = "pmix.lpeers"   // their ranks on this node, with commas
)

// Status is what a call of libpmix returns; 0 is success. Events have statuses too.
type Status int32

// The statuses that mean something to callers.
const (
	ProcAborted     Status = -7
	Timeout         Status = -24
	Unreachable     Status = -25
	NotFound        Status = -46
	NotSupported    Status = -47
	PartialSuccess  Status = -52  // of a fence: a member has gone
	LostConnection  Status = -61  // the server is gone
	ProcUnsynced    Status = -200 // a process has ended without finalize
	ProcKilled      Status = -402 // by a signal
	ProcExitNonzero Status = -404
)

// Error says which call failed, and how.
type Error struct {
	Call string
	Code Status
	Text string // libpmix's
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }

// Is reports whether err is an Error with that status.
func Is(err error, s Status) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == s
}

// Kind is what a Value holds.
type Kind int

const (
	KindOther  Kind = iota // a type that this package does not read
	KindNumber             // of any width; servers differ
	KindText               // a string, or bytes
)

// A Value is what Get found.
type Value struct {
	Kind   Kind
	Type   int // libpmix's own
	Number int64
	Bytes  []byte
}

// Proc names a process.
type Proc struct {
	Namespace string
	Rank      uint32
}

// An Event is news from the server.
type Event struct {
	Code Status
	Proc Proc // who is concerned; no namespace: nobody in particular
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

// parseVersion reads what the library says of itself, such as "OpenPMIx 4.2.2rc2 (PMIx
// Standard: 4.2, ...)": the first word with dots in it.
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

// loadError makes one line of what the dynamic linker says.
func loadError(path, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, path+":"))
	return fmt.Errorf("%s can't be loaded: %s", path, why)
}

// slots are the calls in progress.
type callSlots chan struct{}

type callResult[T any] struct {
	value T
	err   error
}

// within runs a call that may never return.
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
	done := make(chan callResult[T], 1) // with room: the caller may be gone
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
	case o := <-done: // what has come counts
		return o.value, o.err
	default:
		return none, fmt.Errorf("%s has not returned: %w", call, context.Cause(ctx))
	}
}

// alone waits until no other call is in progress, and keeps others out until the release.
// It leaves room for one.
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

// fits refuses a name that libpmix would cut.
func checkName(call, name string, most int) error {
	if len(name) == 0 || len(name) > most || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%s: a name of %d bytes: want 1 to %d, none of them 0", call, len(name), most)
	}
	return nil
}

// checkGroup refuses what would wait for ever.
func checkGroup(call, namespace string, ranks []uint32, limit time.Duration) error {
	if err := checkName(call, namespace, MaxNamespace); err != nil {
		return err
	}
	if len(ranks) == 0 || limit <= 0 {
		return fmt.Errorf("%s: %d ranks and a limit of %v: want some, and a limit", call, len(ranks), limit)
	}
	return nil
}
